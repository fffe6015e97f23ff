// Every array of a clip has the same bits for every layout: numbers of ranks, cuts, meshes, modes,
// device maps, rank weights, threads, batches and dtypes, for all model families. Whole jobs run
// within one launch of 8 ranks, on CPUs or on the backend that REELMESH_BACKEND names. end_to_end/
// compares one rank with the reference pipelines.
#include <gtest/gtest.h>

#include <fstream>

#include "base/log.hpp"
#include "layout/mesh/random_mesh.hpp"
#include "pipeline/layouts/run_rows.hpp"
#include "pipeline/layouts/toy_family.hpp"
#include "support/long.hpp"
#include "support/ranks.hpp"
#include "weights/json.hpp"

namespace reelmesh::test {
namespace {

const std::filesystem::path data(REELMESH_TEST_DATA);

std::string mesh(int cfg, int ring, int ulysses) {
  return fmt::format(" --parallel.cfg {} --parallel.ring {} --parallel.ulysses {}", cfg, ring,
                     ulysses);
}

// In tools/test every second of these rows, in tests/long all.
std::vector<LayoutRow> some(std::vector<LayoutRow> rows) {
  if (tests_are_long()) return rows;
  std::vector<LayoutRow> chosen;
  for (std::size_t i = 0; i < rows.size(); i += 2) chosen.push_back(rows[i]);
  return chosen;
}

const std::string height = " --parallel.shard height", frames = " --parallel.shard frames",
                  grid = " --parallel.shard grid", split = " --parallel.mode split",
                  phased = " --parallel.mode phased", threads = " --device.threads 3";

// A line of a prompt file for each clip, with those of these fields that it has.
std::string prompt_lines(const std::vector<nlohmann::json>& clips,
                         const std::vector<const char*>& fields) {
  std::string lines;
  for (const nlohmann::json& clip : clips) {
    nlohmann::json line;
    for (const char* field : fields) {
      if (clip.contains(field)) line[field] = clip.at(field);
    }
    lines += line.dump() + "\n";
  }
  return lines;
}

const std::vector<const char*> text_fields{"prompt", "negative_prompt", "seed"};

class Layouts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    log::set_level(log::Level::error);
    add_toy_family();
  }

  static std::string backend() {
    const char* given = std::getenv("REELMESH_BACKEND");
    return given != nullptr ? given : "cpu";
  }

  // Rank 0 writes the file; all ranks can read it afterwards. Collective.
  std::filesystem::path write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_.path() / name;
    if (world().rank() == 0) std::ofstream(path) << text;
    world().barrier();
    return path;
  }

  // Options for both clips of a tiny checkpoint's reference, storing embeddings too. steps 0: as
  // many as in the reference.
  std::string cogvideox(const std::string& kind, int steps = 0) {
    const auto facts = parse_json(read_text(data / "cogvideox" / kind / "reference.json", 1 << 20),
                                  "reference.json");
    return fmt::format(
        "--model.path {} --prompt.file {} --sample.height {} --sample.width {} --sample.frames {} "
        "--sample.steps {} --sample.guidance {} --output.embeddings yes",
        (data / "cogvideox" / kind).string(),
        write("clips.jsonl", prompt_lines(facts.at("clips"), text_fields)).string(),
        facts.at("height").get<int>(), facts.at("width").get<int>(),
        facts.at("num_frames").get<int>(), steps > 0 ? steps : facts.at("steps").get<int>(),
        facts.at("guidance").get<double>());
  }

  std::string dynamic(const std::string& kind) {
    const auto facts = parse_json(read_text(data / "cogvideox" / kind / "reference.json", 1 << 20),
                                  "reference.json");
    return facts.at("dynamic_guidance").get<bool>() ? " --sample.dynamic-guidance yes" : "";
  }

  std::string opensora(const std::string& kind, int steps = 3) {
    const std::string prompt = write("prompt.txt", "A small boat drifts across a quiet lake.\n");
    const std::string size = kind == "v1_2" ? " --sample.height 104 --sample.width 72 "
                                              "--sample.frames 51 --sample.fps 24"
                                            : "";
    return fmt::format(
        "--model.path {} --prompt.file {} --sample.steps {} --output.embeddings yes{}",
        (data / "opensora" / kind).string(), prompt, steps, size);
  }

  // The first two clips of a tiny model's reference; those of ti2v begin from a text and an image.
  // model: another folder than that of this kind, with options.
  std::string wan(const std::string& kind = "float32", int steps = 4,
                  const std::string& model = {}) {
    const std::filesystem::path texts = data / "wan" / "float32";
    const auto facts =
        parse_json(read_text(data / "wan" / kind / "pipeline.json", 1 << 20), "pipeline.json");
    std::vector<nlohmann::json> clips{facts.at("clips").at(0), facts.at("clips").at(1)};
    std::vector<const char*> fields = text_fields;
    fields.push_back("image");
    for (nlohmann::json& clip : clips) {
      if (!clip.contains("image")) continue;
      clip["image"] = (data / "cogvideox/media" / clip.at("image").get<std::string>()).string();
    }
    return fmt::format(
        "--model.path {} --model.text-encoder {} --model.tokenizer {} --prompt.file {} "
        "--sample.height {} --sample.width {} --sample.frames {} --sample.steps {} "
        "--output.embeddings yes",
        model.empty() ? (data / "wan" / kind).string() : model, (texts / "text_encoder").string(),
        (texts / "tokenizer").string(), write("wan.jsonl", prompt_lines(clips, fields)).string(),
        facts.at("height").get<int>(), facts.at("width").get<int>(),
        facts.at("num_frames").get<int>(), steps);
  }

  std::string wan_from_videos() {
    const std::filesystem::path model = data / "wan" / "float32";
    const auto facts = parse_json(read_text(model / "from_video.json", 1 << 20), "from_video.json");
    std::vector<nlohmann::json> clips(2, facts.at("clips").front());
    clips.back()["seed"] = 99;
    for (nlohmann::json& clip : clips) {
      clip["video"] = (data / "cogvideox/media" / clip.at("video").get<std::string>()).string();
    }
    return fmt::format(
        "--model.path {} --prompt.file {} --sample.height {} --sample.width {}", model.string(),
        write("videos.jsonl", prompt_lines(clips, {"prompt", "negative_prompt", "seed", "frames",
                                                   "steps", "strength", "video"}))
            .string(),
        facts.at("height").get<int>(), facts.at("width").get<int>());
  }

  // kind: of the tiny models for images, whose other parts are those of the model for texts.
  std::string wan_from_images(const std::string& kind) {
    const std::filesystem::path folder = data / "wan", images = folder / "image";
    const auto facts = parse_json(read_text(folder / kind / "clips.json", 1 << 20), "clips.json");
    std::vector<nlohmann::json> clips(2, facts.at("clips").front());
    clips.back() = facts.at("clips").back();
    for (nlohmann::json& clip : clips) {
      for (const char* field : {"image", "last_image"}) {
        if (clip.contains(field)) clip[field] = (images / clip[field]).string();
      }
    }
    clips.back()["seed"] = 99;
    return fmt::format(
        "--model.path {} --model.vae {}/vae --model.text-encoder {}/text_encoder "
        "--model.tokenizer {}/tokenizer --model.scheduler {}/scheduler --model.image-encoder "
        "{}/image_encoder --model.image-processor {}/image_processor --prompt.file {} "
        "--sample.height 48 --sample.width 80 --sample.frames 9 --sample.steps 3",
        (folder / kind).string(), (folder / "float32").string(), (folder / "float32").string(),
        (folder / "float32").string(), (folder / "float32").string(), images.string(),
        images.string(),
        write(kind + ".jsonl",
              prompt_lines(clips, {"prompt", "negative_prompt", "seed", "image", "last_image"}))
            .string());
  }

  // Five clips; the third has another number of frames.
  std::string five_clips(const std::string& model, const std::string& more) {
    const std::string prompts = write("five.jsonl", R"({"prompt": "A red fox runs.", "seed": 100}
{"prompt": "Waves break on black rocks.", "seed": 103}
{"prompt": "A small boat drifts across a quiet lake at dawn.", "seed": 106, "frames": 21}
{"prompt": "A lamp.", "seed": 109}
{"prompt": "The camera rises over a long river between two green hills.", "seed": 112}
)");
    return fmt::format("--model.path {} --prompt.file {} --sample.steps 2{}",
                       (data / model).string(), prompts, more);
  }

  // parts: the folder with text encoder and tokenizer.
  std::string toy(const std::filesystem::path& parts = data / "cogvideox" / "sincos") {
    const std::filesystem::path root = folder_.path() / "toy";
    if (world().rank() == 0) write_toy_model(root, parts / "text_encoder");
    world().barrier();
    return fmt::format(
        "--model.path {} --model.text-encoder {}/text_encoder --model.tokenizer {}/tokenizer "
        "--prompt.file {} --output.embeddings yes",
        root.string(), parts.string(), parts.string(),
        write("toy.jsonl",
              "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"frames\": 3}\n"
              "{\"prompt\": \"c\", \"steps\": 2}\n")
            .string());
  }

  void expect_same(const std::string& job, std::vector<LayoutRow> rows) {
    rows.insert(rows.begin(), {1, "", "1 rank"});
    const std::filesystem::path outputs = folder_.path() / fmt::format("outputs_{}", ++calls_);
    if (world().rank() == 0) std::filesystem::create_directory(outputs);
    world().barrier();
    expect_same_clips(world(), outputs, job + " --device.backend " + backend(), rows);
  }

  SharedFolder folder_{world()};
  int calls_ = 0;
};

// For rows that test text encoding and denoising: no videos, unless REELMESH_LONG is set
// (tests/long). Decoding takes nine tenths of the time of these jobs, and other rows test it.
const std::string latents_only = tests_are_long() ? "" : " --output.video no";

TEST_F(Layouts, Rotary) {  // 4 x 7 x 3 tokens, 7 heads, 5 layers of text encoder
  const std::string json = write("map.json", R"({"shared": 1, "encoder.embed_tokens": 1,
      "encoder.block.0": 1, "encoder.block.1": 0, "encoder.block.2": 0, "encoder.block.3": 2,
      "encoder.block.4": 2, "encoder.final_layer_norm": 0, "encoder.dropout": 0})");
  const std::string job = cogvideox("rotary") + dynamic("rotary");
  expect_same(
      job + latents_only,
      some({{2, phased + frames + " --parallel.cfg 1" + threads, "[2:4, 0:7, 0:3]"},
            {2, phased, "cfg 2 x ring 1 x ulysses 1 (cfg 2 because the number of ranks is even"},
            {2, phased + " --parallel.ring 2" + threads, "cfg 1 x ring 2 x ulysses 1"},
            {3, phased + " --parallel.device-map 0-1:0,2-3:2,4:0", "layers 0-1:0,2-3:2,4-4:0"},
            {4, phased + " --parallel.ring 2 --parallel.cfg 2", "cfg 2 x ring 2 x ulysses 1"},
            {4, split + mesh(2, 1, 1), "denoise: ranks 1-2"},
            {5, phased + " --parallel.replicas 2 --parallel.ulysses 2",
             "denoise replica 1: ranks 2-3"},
            {6, phased + mesh(1, 3, 2), "cfg 1 x ring 3 x ulysses 2"},
            {7, phased + mesh(2, 1, 3),
             "denoise: ranks 0-5"},  // uneven heads, one rank without a clip
            {8, split + " --parallel.replicas 2 --parallel.cfg 1 --parallel.ring 3",
             "cfg 1 x ring 3 x ulysses 1"},
            {7, split + grid + " --parallel.text 2", "denoise: ranks 2-5"},
            {3, phased + " --device.speeds auto", "speeds: "},
            {3, phased + " --parallel.order rank", "decode: ranks 0-2"},
            {3, phased + " --parallel.device-map " + json, "layers 0-0:1,1-2:0,3-4:2"},
            {5, split + " --parallel.text 3 --parallel.device-map " + json,
             "layers 0-0:1,1-2:0,3-4:2"}}));
  expect_same(
      job,
      some({{1, threads, "rank 0"},
            {2, phased + height + mesh(1, 1, 2), "[0:4, 4:7, 0:3]"},
            {2, phased + height + " --device.speeds 1,3 --parallel.cfg 1", "[0:4, 0:2, 0:3]"},
            {3, split, "split"},
            {4, phased + grid + " --parallel.cfg 1", "[2:4, 4:7, 0:3]"},
            {4, split + " --parallel.replicas 2", "denoise replica 1: rank 2"},
            {5, split + frames + " --parallel.text 2 --parallel.device-map 0:1,1-4:0",
             "layers 0-0:1,1-4:0"},
            {5, phased + frames, "decode: ranks 0-4"},  // one rank without frames
            {5, split + frames + " --device.speeds 1,1,3,2,2 --parallel.decode 2 --parallel.cfg 1",
             "[0:1, 0:7, 0:3]"},
            {7, phased + height, "decode: ranks 0-6"},  // one row each
            {8, phased + frames + mesh(2, 2, 2), "cfg 2 x ring 2 x ulysses 2"},
            {7, split + " --parallel.text 1 --parallel.decode 4", "decode: ranks 3-6"}}));
}

TEST_F(Layouts, Sincos) {  // 3 x 7 x 5 tokens, 5 heads
  expect_same(cogvideox("sincos") + dynamic("sincos"),
              some({{3, phased + height, "[0:3, 5:7, 0:5]"},
                    {2, phased + " --parallel.text 1 --parallel.decode 1", "decode: rank 0"},
                    {5, phased + " --parallel.ulysses 3 --parallel.decode 5", "denoise: ranks 0-2"},
                    {4, split + frames, "denoise: ranks 1-2"},
                    {7, phased + frames, "decode: ranks 0-6"},  // more ranks than frames and heads
                    {6, phased + mesh(2, 3, 1), "cfg 2 x ring 3 x ulysses 1"},
                    {7, phased + frames + " --parallel.ring 7", "ring 7 x ulysses 1"}}));
}

TEST_F(Layouts, V1_5) {  // 3 x 5 x 3 tokens of two frames, one padded; 3 heads
  expect_same(cogvideox("v1_5") + dynamic("v1_5"),
              some({{1, threads, "rank 0"},
                    {3, phased + frames, "[2:3, 0:5, 0:3]"},  // one token frame per rank
                    {4, phased + grid + mesh(1, 2, 2), "text: ranks 0-3"},
                    {8, phased + mesh(2, 1, 4), "ulysses 4"},      // more ranks than heads
                    {7, phased + height, "decode: ranks 0-6"}}));  // more ranks than rows
}

TEST_F(Layouts, BFloat16) {
  expect_same(cogvideox("rotary") + dynamic("rotary") + " --numerics.dtype bfloat16",
              some({{1, threads, "rank 0"},
                    {3, phased + height, "phased"},
                    {5, split + frames + " --parallel.decode 2", "decode: ranks 3-4"},
                    {6, phased + mesh(2, 3, 1), "cfg 2 x ring 3 x ulysses 1"},
                    {8, phased + mesh(2, 2, 2), "cfg 2 x ring 2 x ulysses 2"},
                    {7, phased + frames, "decode: ranks 0-6"}}));
}

TEST_F(Layouts, BFloat16OfAnotherModel) {
  expect_same(cogvideox("sincos") + dynamic("sincos") + latents_only + " --numerics.dtype bfloat16",
              {{8, phased + mesh(2, 2, 2), "cfg 2 x ring 2 x ulysses 2"},
               {7, phased + frames, "decode: ranks 0-6"}});
}

TEST_F(Layouts, OneBranch) {
  std::string job = cogvideox("rotary");
  job.replace(job.find("--sample.guidance 6"), 19, "--sample.guidance 1");
  expect_same(job + latents_only, {{3, split, "split"},
                                   {5, phased + height, "phased"},
                                   {4, phased + " --parallel.cfg 2", "cfg 1 x ring"},
                                   {4, phased + mesh(2, 1, 2),
                                    "guidance has one branch, so the ranks of cfg join the ring"}});
}

TEST_F(Layouts, OpenSora) {  // 16 x 7 x 5 tokens, 5 heads
  const std::vector<LayoutRow> rows{
      {2, "", "whole on each rank"},
      {3, " --device.threads 2", "[11:16, 0:7, 0:5]"},
      {3, height, "whole on each rank"},
      {4, grid, "[8:16, 4:7, 0:5]"},
      {4, split, "denoise: ranks 1-2"},
      {5, " --parallel.replicas 2 --parallel.ulysses 2", "denoise replica 1: ranks 2-3"},
      {4, " --device.speeds 1,1,2,4", "[0:2, 0:7, 0:5] [2:4, 0:7, 0:5] [4:8, 0:7, 0:5]"},
      {8, "", "[14:16, 0:7, 0:5]"}};
  expect_same(opensora("v1_0"), some(rows));
}

TEST_F(Layouts, OpenSoraInBFloat16) {
  expect_same(opensora("v1_0") + " --numerics.dtype bfloat16",
              {{3, " --device.threads 2", "[11:16, 0:7, 0:5]"}, {4, grid, "[8:16, 4:7, 0:5]"}});
}

TEST_F(Layouts, OpenSora1_2) {  // 15 x 7 x 5 tokens
  expect_same(opensora("v1_2"), {{2, phased, "[8:15, 0:7, 0:5]"},
                                 {5, "", "[12:15, 0:7, 0:5]"},
                                 {6, grid, "whole on each rank"},
                                 {7, split, "denoise: ranks 1-5"}});
}

TEST_F(Layouts, OpenSora1_2InBFloat16) {
  expect_same(opensora("v1_2") + latents_only + " --numerics.dtype bfloat16",
              {{5, "", "[12:15, 0:7, 0:5]"}, {7, split, "denoise: ranks 1-5"}});
}

TEST_F(Layouts, OpenSora1_2InFloat16) {
  if (backend() != "cuda") GTEST_SKIP() << "float16 is for GPUs";
  expect_same(opensora("v1_2") + " --numerics.dtype float16", {{4, split, "whole on each rank"}});
}

TEST_F(Layouts, OpenSoraOnMoreRanksThanFrames) {
  expect_same(opensora("v1_0") + " --sample.frames 3 --sample.height 64 --sample.width 96",
              {{6, "", "whole on each rank"}});
}

TEST_F(Layouts, OpenSoraOfOneImage) {
  expect_same(opensora("v1_0") + " --sample.frames 1 --sample.height 64 --sample.width 96",
              {{5, "", "whole on each rank"}, {8, "", "whole on each rank"}});
}

TEST_F(Layouts, Wan) {  // 5 x 3 x 5 tokens, 3 heads
  expect_same(
      wan() + latents_only,
      some({{2, phased, "cfg 2 x ring 1 x ulysses 1"},
            {4, phased + grid + mesh(1, 2, 2), "cfg 1 x ring 2 x ulysses 2"},
            {5, phased + frames + mesh(1, 1, 5), "ulysses 5"},  // more ranks than heads
            {4, split + mesh(2, 1, 1), "denoise: ranks 1-2"},
            {8, phased + mesh(2, 2, 2), "cfg 2 x ring 2 x ulysses 2"},
            {7, phased + frames + mesh(1, 7, 1), "ring 7"},
            {3, phased + " --parallel.weights host", "host"},
            {6, phased + " --parallel.replicas 2 --parallel.ulysses 3", "denoise replica 1"},
            {5, phased + " --parallel.weights sharded", "sharded"}}));
  expect_same(wan(), {{3, phased + height + threads, "cfg 1 x ring 1 x ulysses 3"},
                      {8, split + " --parallel.decode 4", "decode: ranks 4-7"}});
  expect_same(wan() + " --numerics.dtype bfloat16" + latents_only,
              {{6, phased + mesh(2, 1, 3), "cfg 2 x ring 1 x ulysses 3"},
               {4, phased + mesh(1, 4, 1), "ring 4"}});
}

TEST_F(Layouts, WanFromImages) {  // 3 x 3 x 5 tokens, 3 heads
  expect_same(wan_from_images("image") + latents_only,
              some({{2, phased, "cfg 2 x ring 1 x ulysses 1"},
                    {3, phased + height, "cfg 1 x ring 1 x ulysses 3"},
                    {5, phased + frames + mesh(1, 1, 5), "ulysses 5"},
                    {4, phased + " --parallel.replicas 2", "denoise replica 1"},
                    {6, phased + mesh(2, 3, 1) + " --parallel.weights sharded", "sharded"},
                    {3, phased + " --sample.batch 2 --parallel.weights host", "host"}}));
  expect_same(wan_from_images("image"), {{5, split + " --parallel.decode 2", "decode: ranks 3-4"}});
  expect_same(wan_from_images("ends") + " --numerics.dtype bfloat16" + latents_only,
              {{4, phased + mesh(2, 1, 2), "cfg 2 x ring 1 x ulysses 2"},
               {3, split, "split"},
               {5, phased + frames + " --sample.batch 2", "ulysses"}});
}

TEST_F(Layouts, WanFromVideos) {  // 3 x 3 x 5 tokens, 3 heads
  expect_same(wan_from_videos(),
              some({{3, phased + height, "cfg 1 x ring 1 x ulysses 3"},
                    {4, phased + frames + mesh(2, 1, 2), "cfg 2"},
                    {5, split + " --parallel.decode 3", "decode: ranks 2-4"},
                    {3, phased + " --sample.batch 2 --parallel.weights sharded", "sharded"}}));
  expect_same(wan_from_videos() + " --numerics.dtype bfloat16" + latents_only,
              {{4, phased + mesh(2, 2, 1), "ring 2"}});
}

TEST_F(Layouts, WanFromTextOrImage) {  // 3 x 2 x 3 tokens, 3 heads
  expect_same(wan("ti2v"),
              some({{2, phased + mesh(1, 1, 2) + height, "cfg 1 x ring 1 x ulysses 2"},
                    {3, phased + mesh(1, 3, 1) + frames, "ring 3"},
                    {5, phased + grid + mesh(1, 1, 5), "ulysses 5"},
                    {4, phased + frames + mesh(2, 1, 2) + " --sample.batch 2", "cfg 2"},
                    {5, split + " --parallel.decode 3", "decode: ranks 2-4"},
                    {3, phased + " --parallel.weights sharded", "sharded"}}));
  expect_same(wan("ti2v") + " --numerics.dtype bfloat16" + latents_only,
              {{4, phased + mesh(2, 2, 1) + frames, "ring 2"}});
}

// Clips that sample.stop-after leaves, completed on other ranks and layouts: samplers with and
// without history and noise, two experts, a kept residual, images and videos to begin from.
TEST_F(Layouts, ClipsThatAreLeftAndCompleted) {
  const std::string one_replica = " --parallel.replicas 1 --sample.stop-after ";
  const auto expect = [&](const std::string& job, const std::string& layout, int after) {
    const std::string left_with = one_replica + std::to_string(after);
    expect_same(job, {{3, split, "split", 1, left_with}, {3, layout, "", 3, left_with + height}});
  };
  expect(cogvideox("rotary") + dynamic("rotary") + " --sample.scheduler dpm",
         phased + " --sample.batch 2", 2);
  expect(opensora("v1_2", 6) + latents_only +
             " --sample.cache teacache:0.3 --sample.cache-coefficients 0,0,0,1,0",
         phased, 4);
  expect(wan("ti2v") + latents_only, phased + " --parallel.weights sharded", 2);
  if (!tests_are_long()) return;
  expect(cogvideox("v1_5", 4) + dynamic("v1_5") + " --sample.scheduler ddim", phased + frames, 2);
  expect(opensora("v1_0"), phased, 2);
  expect(opensora("v1_2"), phased, 2);
  expect(wan() + " --sample.scheduler euler --sample.cache every:2", phased, 2);
  expect(wan_from_images("ends"), phased, 2);
  expect(wan_from_videos(), phased, 1);
  const std::string experts = fmt::format(
      "{0}/experts --model.transformer {0}/float32/transformer --model.vae {0}/float32/vae "
      "--model.scheduler {0}/float32/scheduler",
      (data / "wan").string());
  expect(wan("float32", 6, experts), phased, 2);
}

// Steps of each expert: 3, so that graphs are replayed.
TEST_F(Layouts, WanOfTwoExperts) {
  const std::string model = fmt::format(
      "{0}/experts --model.transformer {0}/float32/transformer --model.vae {0}/float32/vae "
      "--model.scheduler {0}/float32/scheduler",
      (data / "wan").string());
  expect_same(wan("float32", 6, model) + latents_only + " --sample.guidance-2 2",
              {{2, phased, "cfg 2 x ring 1 x ulysses 1"},
               {3, phased + height, "cfg 1 x ring 1 x ulysses 3"},
               {5, phased + frames + mesh(1, 1, 5) + " --parallel.weights sharded", "sharded"},
               {3, split + " --parallel.weights host", "host"}});
}

TEST_F(Layouts, WanWithStepsLeftOut) {
  for (const char* cache : {"every:3", "teacache:0.1 --sample.cache-coefficients 0,0,0,1,0"}) {
    expect_same(wan() + latents_only + " --sample.cache " + cache,
                {{4, phased + mesh(2, 1, 2), "cfg 2"}, {3, split, "split"}});
  }
}

const std::vector<LayoutRow> batches{
    {1, " --sample.batch 3", "1 rank"},
    {2, " --sample.batch 3", "2 ranks"},
    {3, " --sample.batch 3", "3 ranks"},
    {3, " --sample.batch 3" + split, "split"},
    {5, " --sample.batch 3 --parallel.replicas 2 --parallel.ulysses 2", "denoise replica 1"}};

TEST_F(Layouts, BatchesOfWan) {
  expect_same(five_clips("wan/float32",
                         latents_only + " --sample.height 48 --sample.width 80 --sample.frames 9"),
              batches);
}

TEST_F(Layouts, BatchesOfOpenSora) {
  expect_same(five_clips("opensora/v1_0", latents_only), batches);
}

TEST_F(Layouts, BatchesOfOpenSora1_2) {
  const std::string size =
      latents_only + " --sample.height 104 --sample.width 72 --sample.frames 51";
  expect_same(five_clips("opensora/v1_2", size), {batches[1], batches[2]});
  expect_same(five_clips("opensora/v1_2", size + " --numerics.dtype bfloat16"),
              {{4, " --sample.batch 3" + grid, "whole on each rank"}});
}

TEST_F(Layouts, BatchesOfCogVideoX) {
  std::vector<LayoutRow> rows = batches;
  rows.push_back({4, " --sample.batch 3 --parallel.cfg 2 --parallel.ring 2", "cfg 2 x ring 2"});
  expect_same(
      five_clips("cogvideox/rotary",
                 latents_only + " --sample.height 112 --sample.width 48 --sample.frames 13"),
      rows);
}

TEST_F(Layouts, BatchesWithTheOtherSampler) {
  expect_same(
      five_clips("cogvideox/v1_5", latents_only +
                                       " --sample.height 80 --sample.width 48 --sample.frames 17 "
                                       "--numerics.dtype bfloat16 --sample.scheduler dpm"),
      {{3, " --sample.batch 3", "3 ranks"}, {2, " --sample.batch 3 --parallel.cfg 2", "cfg 2"}});
}

// Steps that are not computed.
TEST_F(Layouts, Cache) {
  const std::string teacache = " --sample.cache teacache:1 --sample.cache-coefficients 0,0,0,1,0";
  expect_same(cogvideox("sincos", 6) + latents_only + teacache,
              some({{2, phased + " --parallel.cfg 2", "cfg 2"},
                    {3, phased + frames, "[2:3, 0:7, 0:5]"},
                    {4, phased + mesh(2, 2, 1) + " --sample.batch 2", "cfg 2 x ring 2"},
                    {5, split + " --parallel.decode 2", "decode: ranks 3-4"},
                    {6, phased + " --parallel.replicas 2", "replica 1"},
                    {7, phased + grid + mesh(1, 7, 1), "ring 7"},
                    {8, phased + height + mesh(2, 1, 4), "ulysses 4"}}));
  expect_same(
      cogvideox("v1_5", 5) + latents_only + " --numerics.dtype bfloat16 --sample.cache every:2",
      {{3, phased + frames, "3 ranks"}, {4, split + " --sample.batch 2", "split"}});
  expect_same(opensora("v1_0", 4) + latents_only + " --sample.cache every:2",
              {{3, phased + frames, "3 ranks"}, {4, split, "split"}, {5, phased, "5 ranks"}});
  expect_same(
      opensora("v1_2", 4) + latents_only + " --sample.cache every:3 --numerics.dtype bfloat16",
      {{2, phased, "2 ranks"}, {4, phased + grid, "4 ranks"}});
  // Decided by values of the clip.
  const std::string decided = " --sample.cache teacache:0.4 --sample.cache-coefficients 0,0,0,1,0";
  expect_same(opensora("v1_2", 6) + latents_only + decided,
              some({{2, phased, "2 ranks"},
                    {4, phased + grid + " --sample.batch 2", "4 ranks"},
                    {5, split, "split"},
                    {7, phased + frames, "7 ranks"}}));
  expect_same(opensora("v1_0", 6) + latents_only + decided + " --numerics.dtype bfloat16",
              {{3, phased + frames, "3 ranks"}, {8, phased + grid, "8 ranks"}});
  if (backend() != "cpu") return;
  expect_same(toy() + " --sample.steps 5 --sample.cache every:2",
              {{3, phased, "3 ranks"}, {6, phased + mesh(2, 1, 3) + " --sample.batch 2", "cfg 2"}});
}

// Every second step of another model.
TEST_F(Layouts, CacheOfOneRow) {
  expect_same(cogvideox("sincos", 5) + " --sample.cache every:2",
              {{3, phased + frames, "[2:3, 0:7, 0:5]"}});
}

TEST_F(Layouts, DemoModel) {
  const std::string prompts =
      write("demo.txt", "a red circle falls over a white field\na blue square turns\n");
  expect_same(fmt::format("--config {0}/inputs/demo.cfg --model.path {0}/inputs/demo_model "
                          "--prompt.file {1}",
                          REELMESH_SOURCE, prompts),
              {{3, frames, "[2:3, 0:4, 0:4]"}, {4, split, "denoise: ranks 1-2"}});
}

// Memory limits so low that transformer and decoder are loaded in turn for each round of clips.
TEST_F(Layouts, Offloaded) {
  if (backend() != "cpu") GTEST_SKIP() << "the limits are those of CPUs";
  expect_same(cogvideox("sincos") + dynamic("sincos"),
              {{1, " --device.memory-limit 87MiB", "1 rank"},
               {2, phased + " --parallel.replicas 2 --device.memory-limit 87MiB", "replica 1"}});
}

// Both modes on 2 to 8 ranks, and meshes of the toy family.
std::vector<LayoutRow> rows_of_toy() {
  std::vector<LayoutRow> rows;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    rows.push_back({ranks, phased, fmt::format("decode: ranks 0-{}", ranks - 1)});
    if (ranks >= 3) rows.push_back({ranks, split, "split"});
  }
  rows.push_back({8, phased + " --parallel.replicas 2" + mesh(2, 2, 1), "cfg 2 x ring 2"});
  rows.push_back({6, phased + frames + mesh(2, 1, 3) + " --sample.batch 2", "ulysses 3"});
  return rows;
}

// A third family, which lib/plan and lib/pipeline know only through Family::add.
TEST_F(Layouts, ThirdFamily) {
  if (backend() != "cpu") GTEST_SKIP() << "the toy family computes on CPUs";
  std::vector<LayoutRow> rows = rows_of_toy();
  rows.push_back({5, phased + " --device.speeds 1,2,1,3,1", "speeds: 1, 2, 1, 3, 1"});
  expect_same(toy(), some(rows));
  expect_same(toy() + " --numerics.dtype bfloat16 --sample.guidance 1",
              {{3, phased, "3 ranks"}, {7, split, "split"}});
}

// What Wan has beside its transformer and its autoencoder.
TEST_F(Layouts, Umt5AndFlowSamplers) {
  if (backend() != "cpu") GTEST_SKIP() << "the toy family computes on CPUs";
  const std::string job = toy(data / "umt5") + " --sample.flow-shift 5 --sample.steps 4";
  expect_same(job + " --sample.scheduler unipc",
              {{2, phased + " --parallel.device-map 0:1,1-2:0", "layers 0-0:1,1-2:0"},
               {3, phased + " --parallel.device-map 0:0,1:2,2:1", "layers 0-0:0,1-1:2,2-2:1"},
               {5, split + " --parallel.text 2", "split"},
               {4, phased + frames + mesh(2, 1, 2) + " --sample.batch 2", "cfg 2"}});
  expect_same(job + " --sample.scheduler euler --numerics.dtype bfloat16",
              {{3, phased + " --parallel.device-map 0-1:2,2:0", "layers 0-1:2,2-2:0"},
               {4, split, "split"}});
}

// Random combinations of options that are valid together; in tools/test a third of them.
std::vector<LayoutRow> rows_at_random(int count, unsigned seed) {
  if (!tests_are_long()) count = (count + 2) / 3;
  Dice dice(seed);
  std::vector<LayoutRow> rows;
  while (int(rows.size()) < count) {
    const int ranks = int(dice.roll(1, 8));
    const bool apart = ranks >= 3 && dice.roll(0, 1) == 1;
    const int text = apart ? int(dice.roll(1, ranks - 2)) : int(dice.roll(1, ranks));
    const int decode = apart ? int(dice.roll(1, ranks - text - 1)) : int(dice.roll(1, ranks));
    const int left = apart ? ranks - text - decode : ranks;
    const int replicas = dice.one_of(divisors(left)), group = left / replicas;
    const int cfg = group % 2 == 0 ? int(dice.roll(1, 2)) : 1;
    const int ring = dice.one_of(divisors(group / cfg));
    rows.push_back({ranks,
                    fmt::format("--parallel.mode {} --parallel.text {} --parallel.decode {} "
                                "--parallel.replicas {}{} --parallel.shard {} --sample.batch {}",
                                apart ? "split" : "phased", text, decode, replicas,
                                mesh(cfg, ring, group / cfg / ring),
                                dice.one_of<std::string>({"auto", "height", "frames", "grid"}),
                                dice.roll(1, 3)),
                    apart ? "split" : "phased"});
  }
  return rows;
}

TEST_F(Layouts, AtRandom) {
  const std::string size =
      " --sample.height 112 --sample.width 80 --sample.frames 9 --output.embeddings yes";
  expect_same(five_clips("cogvideox/sincos", size + latents_only), rows_at_random(24, 2026));
  expect_same(five_clips("cogvideox/sincos", size), rows_at_random(4, 2028));
}

TEST_F(Layouts, ThirdFamilyAtRandom) {
  if (backend() != "cpu") GTEST_SKIP() << "the toy family computes on CPUs";
  expect_same(toy(), rows_at_random(24, 2027));
}

// Clips of the reference results that begin from files: names of reference.json.
std::string from_files(const std::vector<std::string>& names, const std::string& kind,
                       const std::filesystem::path& prompts) {
  const std::filesystem::path folder = data / "cogvideox/media";
  const auto all = parse_json(read_text(folder / "reference.json", 1 << 20), "reference.json");
  std::vector<nlohmann::json> clips;
  for (const std::string& name : names) {
    nlohmann::json& clip = clips.emplace_back(all.at(name));
    for (const char* file : {"image", "video"}) {
      if (clip.contains(file)) clip[file] = (folder / clip.at(file).get<std::string>()).string();
    }
  }
  const std::string lines =
      prompt_lines(clips, {"prompt", "negative_prompt", "seed", "height", "width", "frames",
                           "steps", "guidance", "strength", "image", "video"});
  if (world().rank() == 0) std::ofstream(prompts) << lines;
  world().barrier();
  return fmt::format("--model.path {} --prompt.file {}", (data / "cogvideox" / kind).string(),
                     prompts.string());
}

TEST_F(Layouts, ImageToVideo) {  // 3 x 7 x 5 tokens, 5 heads
  const std::string job =
      from_files({"i2v.resized", "i2v.exact"}, "i2v", folder_.path() / "a.jsonl") + latents_only;
  expect_same(job,
              some({{2, phased + frames + " --parallel.cfg 1", "[2:3, 0:7, 0:5]"},
                    {3, phased + height + " --sample.batch 2", "[0:3, 5:7, 0:5]"},
                    {4, phased + " --parallel.replicas 2 --parallel.cfg 2", "replica 1"},
                    {5, split + " --parallel.decode 3", "decode: ranks 2-4"},
                    {6, phased + mesh(2, 3, 1), "cfg 2 x ring 3 x ulysses 1"},
                    {7, split + frames + " --parallel.text 2 --sample.batch 2", "split"},
                    {8, phased + mesh(1, 2, 4) + " --parallel.decode 3", "decode: ranks 0-2"}}));
  expect_same(job + " --numerics.dtype bfloat16 --sample.steps 2",
              {{3, phased + grid, "phased"}, {4, split, "split"}});
}

TEST_F(Layouts, ImageToVideo1_5) {  // 3 x 5 x 3 tokens of two frames, one of them dropped
  expect_same(
      from_files({"i2v_1_5.photo", "i2v_1_5.enlarged"}, "i2v_1_5", folder_.path() / "b.jsonl"),
      some({{3, phased + frames, "[2:3, 0:5, 0:3]"},
            {4, phased + grid + mesh(1, 2, 2), "text: ranks 0-3"},
            {4, split + " --parallel.replicas 2", "denoise replica 1: rank 2"},
            {8, phased + mesh(2, 1, 4) + " --sample.batch 2", "ulysses 4"}}));
}

TEST_F(Layouts, VideoToVideo) {
  expect_same(from_files({"sincos.weak", "sincos.strong"}, "sincos", folder_.path() / "c.jsonl") +
                  latents_only,
              some({{2, phased + frames + " --parallel.cfg 1", "[2:3, 0:7, 0:5]"},
                    {3, split, "split"},
                    {4, phased + grid + mesh(1, 2, 2), "ring 2 x ulysses 2"},
                    {6, split + " --parallel.replicas 2 --parallel.decode 3", "decode: ranks 3-5"},
                    {7, phased + height, "decode: ranks 0-6"}}));
  expect_same(from_files({"v1_5.strong"}, "v1_5", folder_.path() / "d.jsonl") + latents_only +
                  " --numerics.dtype bfloat16",
              {{3, phased + frames, "phased"}, {8, phased + mesh(2, 1, 4), "ulysses 4"}});
}

// A third of the clips begin from an image, a third from a video, which other jobs have made.
TEST_F(Layouts, InputsOfTheThirdFamily) {
  if (backend() != "cpu") GTEST_SKIP() << "the toy family computes on CPUs";
  const std::string model = toy();
  const std::filesystem::path earlier = folder_.path() / "earlier";
  if (world().rank() == 0) std::filesystem::create_directory(earlier);
  world().barrier();
  expect_same_clips(world(), earlier, model + " --device.backend cpu", {{1, "", "1 rank"}});
  const std::string image = (data / "cogvideox/media/wide.png").string();
  std::vector<nlohmann::json> clips;
  for (int i = 0; i < 7; ++i) {
    nlohmann::json& clip = clips.emplace_back();
    clip["prompt"] = std::string(1, char('a' + i));
    if (i % 3 == 1) clip["image"] = image;
    if (i % 3 == 2) {
      clip["video"] = (earlier / "row_0/job.h5").string() + ":0";
      clip["frames"] = i == 2 ? 5 : 4;
    }
  }
  const std::size_t file = model.find("--prompt.file ") + 14;
  std::string job = model;
  job.replace(
      file, job.find(' ', file) - file,
      write("inputs.jsonl", prompt_lines(clips, {"prompt", "image", "video", "frames"})).string());
  std::vector<LayoutRow> rows = rows_of_toy();
  for (const LayoutRow& row : rows_at_random(24, 2029)) rows.push_back(row);
  expect_same(job, some(rows));
}

// Weights that are gathered from other ranks or fetched from the host.
const std::string sharded = " --parallel.weights sharded", host = " --parallel.weights host";

TEST_F(Layouts, Weights) {
  const std::string json = write("host.json", R"({"shared": 0, "encoder.block.0": 0,
      "encoder.block.1": "cpu", "encoder.block": 1, "encoder.block.3": "disk",
      "encoder.final_layer_norm": 1})");
  expect_same(
      cogvideox("rotary", 3) + latents_only,
      {{1, host, "on the host: a rank keeps 0 B"},
       {1, sharded, "sharded: a rank keeps at most "},
       {2, sharded, "sharded"},
       {3, sharded + frames + " --parallel.text-weights host", "layers 0-1:0@host,2-3:1@host"},
       {4, sharded + " --parallel.replicas 2 --parallel.cfg 1", "denoise replica 1: ranks 2-3"},
       {5, sharded + split + " --parallel.text 2", "denoise: ranks 2-3"},
       {3, host + " --parallel.text-weights replicated --sample.batch 2", "layers 0-1:0,2-3:1,4"},
       {2, " --parallel.device-map " + json, "layers 0-0:0,1-1:0@host,2-2:1,3-3:1@host,4-4:1"},
       {7, sharded + phased + mesh(2, 1, 3), "denoise: ranks 0-5"},
       {8, sharded + phased + mesh(2, 2, 2), "sharded"}});
  expect_same(cogvideox("v1_5", 2), {{3, sharded + " --parallel.decode-weights host", "sharded"},
                                     {4, host + split, "on the host"}});
  for (const char* kind : {"v1_0", "v1_2"}) {
    expect_same(opensora(kind, 2) + latents_only,
                {{1, host, "on the host"},
                 {2, sharded + " --parallel.decode-weights host", "sharded"},
                 {3, host, "on the host"},
                 {5, sharded + split, "sharded"},
                 {8, sharded, "sharded"}});
  }
  // Shares follow the room that ranks have.
  expect_same(
      cogvideox("sincos", 2) + latents_only + " --numerics.dtype bfloat16",
      {{3, sharded + " --device.memory-limit 3GiB,4GiB,9GiB", "sharded"}, {8, sharded, "sharded"}});
}

// Of the rows of Weights, those that always run on emulated GPUs; tests/long runs all.
TEST_F(Layouts, WeightsOfOneOfEachFamily) {
  if (backend() == "cpu" && !tests_are_long()) GTEST_SKIP() << "other rows are like these";
  expect_same(cogvideox("rotary", 3) + latents_only, {{1, host, "on the host: a rank keeps 0 B"},
                                                      {2, sharded, "sharded"},
                                                      {3, host, "layers 0-1:0@host,2-3:1@host"},
                                                      {4, sharded, "sharded"}});
  expect_same(opensora("v1_0", 2) + latents_only,
              {{2, host, "on the host"}, {5, sharded + split, "sharded"}});
}

TEST_F(Layouts, OneOfEachFamily) {
  expect_same(cogvideox("sincos", 2) + dynamic("sincos"),
              {{7, split + frames + " --parallel.decode 2 --parallel.cfg 2", "cfg 2 x ring"}});
  expect_same(from_files({"i2v.resized"}, "i2v", folder_.path() / "e.jsonl"),
              {{5, split + grid + " --parallel.decode 3", "decode: ranks 2-4"}});
  expect_same(opensora("v1_2", 2), {{4, split, "denoise: ranks 1-2"}});
}

}  // namespace
}  // namespace reelmesh::test
