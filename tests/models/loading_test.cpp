// Weights that fail to load in the middle of a model.
#include <fstream>
#include <nlohmann/json.hpp>

#include "job/families/cogvideox.hpp"
#include "models/autoencoder/config.hpp"
#include "models/cogvideox/folder.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/common/flow_scheduler.hpp"
#include "models/reference.hpp"
#include "models/wan/config.hpp"
#include "support/expect_error.hpp"
#include "support/ranks.hpp"
#include "support/temp_folder.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

TEST(Loading, FailsCleanlyWithinABlock) {
  const test::Reference reference("sincos");
  const test::TempFolder folder;
  fs::copy(reference.folder / "transformer", folder.path());
  const fs::path file = folder.path() / "diffusion_pytorch_model.safetensors";
  std::string bytes = read_text(file, std::int64_t{1} << 30);
  const std::string name = "transformer_blocks.1.ff.net.2.weight";
  bytes[bytes.find(name) + name.find('2')] = '9';
  std::ofstream(file, std::ios::binary) << bytes;
  const auto weights = Checkpoint::open(folder.path(), "diffusion_pytorch_model");
  // What the constructor has loaded by then is freed once: a second time ends the process.
  for (int i = 0; i < 10; ++i) {
    test::expect_error(
        Status::data,
        [&] { const CogVideoXTransformer model(weights, reference.transformer, DType::float32); },
        name, "is missing");
  }
}

// Keys that are missing have the values of the reference's classes: a config in which they are
// written out is the same. tools/reference/make_config_defaults.py writes the file.
TEST(Configs, HaveTheDefaultsOfTheReference) {
  const auto all = nlohmann::json::parse(
      read_text(fs::path(REELMESH_TEST_DATA) / "config_defaults.json", max_config_bytes));
  const auto compare = [&](const char* class_name, const nlohmann::json& needed, auto read) {
    nlohmann::json written = all.at(class_name);
    EXPECT_GE(written.size(), 10U);
    written.update(needed);
    const auto given = [&](const nlohmann::json& keys) {
      return read(Config::parse(keys.dump(), "config.json"));
    };
    EXPECT_TRUE(given(needed) == given(written)) << class_name;
    // The comparison sees each key that is read: another value is another config, or is refused.
    int seen = 0;
    for (const auto& [key, value] : written.items()) {
      if (!value.is_number() || needed.contains(key)) continue;
      nlohmann::json changed = written;
      changed[key] = value.is_number_float() ? nlohmann::json(value.template get<double>() / 2)
                                             : nlohmann::json(2 * value.template get<int>() + 2);
      try {
        seen += given(changed) == given(written) ? 0 : 1;
      } catch (const Error&) {
        ++seen;
      }
    }
    EXPECT_GE(seen, 4) << class_name;
  };
  compare("CogVideoXTransformer3DModel", nlohmann::json::object(), CogVideoXConfig::read);
  compare("AutoencoderKLCogVideoX", nlohmann::json::object(), CogVideoXVaeConfig::read);
  compare("WanTransformer3DModel", nlohmann::json::object(), WanConfig::read);
  compare("AutoencoderKLWan", nlohmann::json::object(), WanVaeConfig::read);
  compare("AutoencoderKL", nlohmann::json::object(), ImageAutoencoderConfig::read);
  compare("CogVideoXDDIMScheduler", nlohmann::json::object(), read_scheduler);
  compare("CogVideoXDPMScheduler", nlohmann::json::object(), read_scheduler);
  // The default, relu, is that of the first T5, which is refused.
  compare("T5Config", {{"feed_forward_proj", "gated-gelu"}}, T5Config::read);
  compare("UMT5Config", {{"model_type", "umt5"}}, T5Config::read);
}

TEST(Configs, OfFlowSchedulers) {
  const auto read = [](const nlohmann::json& keys, const std::string& name) {
    return read_flow_scheduler(Config::parse(keys.dump(), "scheduler_config.json"),
                               {name, "model_index.json: scheduler"});
  };
  // Those of the released folders, which write out all keys, and others without them.
  const nlohmann::json unipc{{"num_train_timesteps", 1000},
                             {"solver_order", 2},
                             {"prediction_type", "flow_prediction"},
                             {"thresholding", false},
                             {"predict_x0", true},
                             {"solver_type", "bh2"},
                             {"lower_order_final", true},
                             {"disable_corrector", nlohmann::json::array()},
                             {"solver_p", nullptr},
                             {"use_karras_sigmas", false},
                             {"use_flow_sigmas", true},
                             {"flow_shift", 3.0},
                             {"final_sigmas_type", "zero"}};
  const FlowScheduler multistep = read(unipc, "UniPCMultistepScheduler");
  EXPECT_EQ(multistep.sampler->option, "unipc");
  EXPECT_EQ(multistep.settings, (FlowSettings{1000, 3.0}));
  const nlohmann::json few{{"prediction_type", "flow_prediction"}, {"use_flow_sigmas", true}};
  EXPECT_EQ(read(few, "UniPCMultistepScheduler").settings, (FlowSettings{1000, 1.0}));
  const FlowScheduler euler = read({{"shift", 8.0}}, "FlowMatchEulerDiscreteScheduler");
  EXPECT_EQ(euler.sampler->option, "euler");
  EXPECT_EQ(euler.settings, (FlowSettings{1000, 8.0}));

  const std::vector<std::pair<const char*, nlohmann::json>> others{
      {"prediction_type", "epsilon"},
      {"solver_order", 3},
      {"solver_type", "bh1"},
      {"predict_x0", false},
      {"lower_order_final", false},
      {"use_flow_sigmas", false},
      {"use_karras_sigmas", true},
      {"final_sigmas_type", "sigma_min"},
      {"flow_shift", 0},
      {"disable_corrector", {0}},
      {"num_train_timesteps", 0}};
  for (const auto& [key, value] : others) {
    nlohmann::json keys = unipc;
    keys[key] = value;
    test::expect_error(
        Status::data, [&] { read(keys, "UniPCMultistepScheduler"); }, "scheduler_config.json", key);
  }
  const std::vector<std::pair<const char*, nlohmann::json>> of_euler{
      {"use_dynamic_shifting", true}, {"shift_terminal", 0.1}, {"stochastic_sampling", true}};
  for (const auto& [key, value] : of_euler) {
    test::expect_error(
        Status::data,
        [&] {
          read({{key, value}}, "FlowMatchEulerDiscreteScheduler");
        },
        "scheduler_config.json", key);
  }
  for (const FlowSampler& sampler : flow_samplers()) {  // none is without a reader of its file
    try {
      read({}, std::string(sampler.class_name));
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::data) << error.what();
    }
  }
  test::expect_error(
      Status::data, [&] { read(unipc, "DDIMScheduler"); }, "model_index.json: scheduler",
      "DDIMScheduler", "UniPCMultistepScheduler or FlowMatchEulerDiscreteScheduler");
}

TEST(Configs, RefuseNumbersThatGiveNoPictures) {
  const auto refuses = [](auto read, const char* key, const char* value) {
    const std::string text = fmt::format("{{\"{}\": {}}}", key, value);
    test::expect_error(
        Status::data, [&] { read(Config::parse(text, "config.json")); }, "config.json", key, value);
  };
  for (const auto& [key, value] : {std::pair{"norm_eps", "-1"},
                                   {"norm_eps", "0"},
                                   {"spatial_interpolation_scale", "1e-300"},
                                   {"temporal_interpolation_scale", "-1.5"},
                                   {"freq_shift", "17"},
                                   {"sample_frames", "1048576"},
                                   {"sample_height", "100000"}}) {
    refuses(CogVideoXConfig::read, key, value);
  }
  for (const auto& [key, value] : {std::pair{"in_channels", "24"},
                                   {"in_channels", "8"},
                                   {"use_learned_positional_embeddings", "true"},
                                   {"ofs_embed_dim", "512"}}) {
    refuses(CogVideoXConfig::read, key, value);
  }
  refuses(CogVideoXVaeConfig::read, "scaling_factor", "0");
  refuses(CogVideoXVaeConfig::read, "norm_eps", "-1");
  refuses(T5Config::read, "layer_norm_epsilon", "-1");
}

TEST(Configs, TellWhatAModelBeginsFrom) {
  const auto read = [](const std::string& text) {
    return CogVideoXConfig::read(Config::parse(text, "config.json"));
  };
  EXPECT_FALSE(read("{}").takes_image());
  const CogVideoXConfig image = read(R"({"in_channels": 32, "ofs_embed_dim": 512})");
  EXPECT_TRUE(image.takes_image());
  EXPECT_EQ(image.latent_channels(), 16);
  EXPECT_EQ(image.image_channels(), 16);
  EXPECT_EQ(image.ofs_channels, 512);
  EXPECT_EQ(image.patch_features(), 128);
  const char* rotary = R"("use_rotary_positional_embeddings": true)";
  const char* learned = R"("use_learned_positional_embeddings": true)";
  EXPECT_TRUE(read(fmt::format("{{{}, {}}}", rotary, learned)).learned_positions);
  // diffusers refuses the first; the second would have a table of another size.
  for (const std::string& more :
       {std::string(), fmt::format(R"({}, "patch_size_t": 2, )", rotary)}) {
    test::expect_error(
        Status::data, [&] { read(fmt::format("{{{}{}}}", more, learned)); }, "config.json",
        "use_learned_positional_embeddings", "use_rotary_positional_embeddings");
  }
  test::expect_error(
      Status::data, [&] { read(R"({"in_channels": 32, "ofs_embed_dim": 256})"); }, "config.json",
      "ofs_embed_dim is 256", "512");
}

TEST(Configs, LimitTheSizeToThatOfTheirPositions) {
  CogVideoXConfig c;  // 480 x 720 pixels, 49 frames
  EXPECT_NO_THROW(c.check_size({1024, 1024, 81}, 0));
  c.linear_patch = true;
  EXPECT_NO_THROW(c.check_size({480, 704, 81}, 0));
  test::expect_error(
      Status::usage,
      [&] {
        c.check_size({480, 736, 49}, 3);
      },
      "sample.width", "clip 3", "480 x 736", "480 x 720");
  c.linear_patch = false;
  c.learned_positions = true;
  EXPECT_NO_THROW(c.check_size({480, 720, 49}, 0));
  for (const VideoSize& other :
       {VideoSize{464, 720, 49}, VideoSize{480, 704, 49}, VideoSize{480, 720, 45}}) {
    test::expect_error(
        Status::usage, [&] { c.check_size(other, 3); },
        "sample.height, sample.width, sample.frames", "clip 3",
        fmt::format("{} x {}", other.height, other.width), "480 x 720 and 49");
  }
}

TEST(LearnedPositions, AreThoseOfTheTokensOfABox) {
  const test::Reference reference("i2v");
  const auto weights =
      Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model");
  const CogVideoXConfig& c = reference.transformer;
  const Shape grid = c.sample_tokens();
  ASSERT_EQ(grid, (Shape{3, 7, 5}));
  const std::int64_t text = c.max_text_tokens, d = c.channels();
  const Tensor table = weights.load(learned_positions_tensor, {1, text + 105, d}, DType::float32)
                           .reshape({text + 105, d});
  const Tensor all =
      learned_positions(weights, c, whole_box({text}), whole_box(grid), DType::float32);
  EXPECT_TRUE(test::same_bits(all, table));
  const Tensor some =
      learned_positions(weights, c, {{4}, {2}}, {{1, 5, 2}, {2, 2, 3}}, DType::float32);
  std::vector<std::int64_t> rows{4, 5};
  for (const std::int64_t t : {1, 2}) {
    for (const std::int64_t y : {5, 6}) {
      for (const std::int64_t x : {2, 3, 4}) rows.push_back(text + (t * 7 + y) * 5 + x);
    }
  }
  ASSERT_EQ(some.shape(), (Shape{std::ssize(rows), d}));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(test::same_bits(some.rows(std::int64_t(i), 1), table.rows(rows[i], 1))) << rows[i];
  }
  EXPECT_TRUE(
      learned_positions(weights, c, {{0}, {0}}, {{0, 0, 0}, {0, 0, 0}}, DType::float32).empty());
  test::expect_error(Status::internal, [&] {
    learned_positions(weights, c, {{0}, {1}}, {{0, 0, 0}, {4, 7, 5}}, DType::float32);
  });
}

TEST(ImageToVideo, NeedsTheEncoderOfTheAutoencoder) {
  const test::TempFolder folder;
  for (const char* kind : {"i2v", "sincos"}) {
    const fs::path model = test::Reference(kind).folder, vae = folder.path() / kind;
    fs::copy(model / "vae", vae);
    const fs::path file = vae / "diffusion_pytorch_model.safetensors";
    std::string bytes = read_text(file, std::int64_t{1} << 30);
    const std::string name = "encoder.conv_in.conv.bias";
    bytes[bytes.find(name)] = 'E';
    std::ofstream(file, std::ios::binary) << bytes;
    ModelPaths paths{.root = model, .vae = vae};
    paths.complete();
    const CogVideoX opened(paths);
    const bool from_image = CogVideoXFolder::open(paths).transformer.takes_image();
    EXPECT_EQ(from_image, std::string(kind) == "i2v");
    if (!from_image) {
      EXPECT_NO_THROW(opened.check_weights(false));
    }
    test::expect_error(
        Status::data, [&] { opened.check_weights(!from_image); }, name, "is missing");
  }
}

TEST(ImageToVideo, NeedsTheLatentsOfAnImage) {
  const test::Reference reference("i2v_1_5");
  const CogVideoXConfig& c = reference.transformer;
  const CogVideoXTransformer model(
      Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model"), c,
      DType::float32);
  const comm::Group& self = test::world();
  DenoiseTask task{.group = self, .layout = {}, .latents = {2, 2, 2}, .size = {}};
  task.layout.tokens = Layout::on_one_rank({1, 1, 1}, self.size(), 0);
  task.layout.text = Layout::on_one_rank({3}, self.size(), 0);
  task.layout.latents = Layout::on_one_rank({2, 2, 2}, self.size(), 0);
  const std::int64_t tokens = own_box(task.layout.text, self).extent[0];
  const auto prepare_with = [&](Tensor image) {
    const Conditioning clip{Tensor::zeros({tokens, 1, c.text_channels}, DType::float32),
                            std::move(image)};
    (void)model.prepare(task, {&clip, 1});
  };
  const Shape box = own_box(task.layout.latents.with_axis(1, 4), self).extent;
  EXPECT_NO_THROW(prepare_with(Tensor::zeros(box, DType::float32)));
  test::expect_error(
      Status::internal, [&] { prepare_with({}); }, "latents [0] of an image");
  test::expect_error(
      Status::internal,
      [&] {
        prepare_with(Tensor::zeros({2, 3, 2, 2}, DType::float32));
      },
      "latents [2, 3, 2, 2] of an image");
}

}  // namespace
}  // namespace reelmesh
