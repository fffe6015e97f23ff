// Checkpoints with random weights: the same bytes for the same seed, and the right shapes.
#include <gmock/gmock.h>

#include <map>

#include "counts.hpp"
#include "models/checkpoints/random_model.hpp"
#include "models/cogvideox/config.hpp"
#include "models/opensora/config.hpp"
#include "scratch.hpp"
#include "shell.hpp"
#include "support/random_tensor.hpp"
#include "support/temp_folder.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh::app {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

const std::string make_model = program + " make-model ";

/// Every file below a folder, with its bytes.
std::map<std::string, std::string> bytes_below(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[fs::relative(entry.path(), folder).string()] = test::read_file(entry.path());
  }
  return files;
}

class MakeModel : public Scratch {};

TEST_F(MakeModel, WritesEveryPart) {
  const Outcome made = shell(make_model + "tiny-cogvideox new/model");
  EXPECT_EQ(made.status, 0) << made.text;
  EXPECT_THAT(made.text, HasSubstr("random float32 weights of seed 42"));
  EXPECT_THAT(made.text, HasSubstr("1,311,827"));
  std::vector<std::string> names;
  for (const auto& [name, bytes] : bytes_below("new/model")) names.push_back(name);
  EXPECT_THAT(names,
              testing::UnorderedElementsAre(
                  "model_index.json", "scheduler/scheduler_config.json", "text_encoder/config.json",
                  "text_encoder/model.safetensors", "tokenizer/added_tokens.json",
                  "tokenizer/special_tokens_map.json", "tokenizer/spiece.model",
                  "tokenizer/tokenizer_config.json", "transformer/config.json",
                  "transformer/diffusion_pytorch_model.safetensors", "vae/config.json",
                  "vae/diffusion_pytorch_model.safetensors"));
}

TEST_F(MakeModel, CutsLayersAndKeepsTheBytesOfTheOthers) {
  const std::string call = make_model + "tiny-cogvideox ";
  ASSERT_EQ(shell(call + "whole").status, 0);
  ASSERT_EQ(shell(call + "cut --layers 1 --text-layers 1").status, 0);
  const Checkpoint whole = Checkpoint::open("whole/transformer", "diffusion_pytorch_model");
  const Checkpoint cut = Checkpoint::open("cut/transformer", "diffusion_pytorch_model");
  EXPECT_TRUE(cut.has("transformer_blocks.0.norm1.linear.bias"));
  EXPECT_FALSE(cut.has("transformer_blocks.1.norm1.linear.bias"));
  for (const auto& [name, info] : cut.tensors()) {
    EXPECT_TRUE(test::same_bits(cut.load(name, info.shape, DType::float32),
                                whole.load(name, info.shape, DType::float32)))
        << name;
  }
  const Checkpoint text = Checkpoint::open("cut/text_encoder", "model");
  EXPECT_FALSE(text.has("encoder.block.1.layer.0.SelfAttention.q.weight"));
  EXPECT_EQ(shell(program + " inspect cut").status, 0);
}

TEST_F(MakeModel, ASeedGivesTheSameBytesOnAnyNumberOfThreads) {
  for (const char* dtype : {"float32", "bfloat16", "float16"}) {
    const std::string call = make_model + "tiny-cogvideox-rotary --dtype " + dtype + " ";
    fs::create_directory(dtype);
    const std::string folder = std::string(dtype) + "/";
    ASSERT_EQ(shell("OMP_NUM_THREADS=1 " + call + folder + "a").status, 0);
    ASSERT_EQ(shell("OMP_NUM_THREADS=3 " + call + "--no-sync " + folder + "b").status, 0);
    ASSERT_EQ(shell(call + "--seed 43 " + folder + "c").status, 0);
    const auto a = bytes_below(folder + "a"), c = bytes_below(folder + "c");
    EXPECT_TRUE(a == bytes_below(folder + "b")) << dtype;
    for (const auto& [name, bytes] : a) {
      EXPECT_EQ(bytes == c.at(name), !name.ends_with(".safetensors")) << name;
    }
  }
}

TEST_F(MakeModel, RefusesFoldersThatHoldAnything) {
  fs::create_directory("mine");
  write("mine/notes.txt", "keep me");
  const Outcome filled = shell(make_model + "tiny-cogvideox mine");
  EXPECT_EQ(filled.status, 73);
  EXPECT_EQ(filled.text,
            "reelmesh: error: mine: found a folder with files, expected a new or empty one\n");
  EXPECT_EQ(bytes_below("mine").size(), 1U);
  EXPECT_EQ(shell(make_model + "tiny-cogvideox mine/notes.txt").status, 73);
  EXPECT_EQ(shell(make_model + "tiny-cogvideox mine/notes.txt/below").status, 73);
  fs::create_directory("empty");
  EXPECT_EQ(shell(make_model + "tiny-cogvideox empty").status, 0);
}

TEST_F(MakeModel, NamesTheNearestPreset) {
  const Outcome wrong = shell(make_model + "tiny-cogvideo model");
  EXPECT_EQ(wrong.status, 64);
  EXPECT_THAT(wrong.text, HasSubstr("unknown preset 'tiny-cogvideo'; did you mean "
                                    "tiny-cogvideox? (presets: "));
  for (const std::string& name : preset_names()) {
    EXPECT_THAT(wrong.text, HasSubstr(name));
  }
  EXPECT_FALSE(fs::exists("model"));
}

TEST_F(MakeModel, TakesAnotherText) {
  EXPECT_EQ(shell(make_model + "tiny-cogvideox a --text nowhere.txt").status, 66);
  EXPECT_FALSE(fs::exists("a"));
  write("lines.txt", "A sentence of my own.\nAnother sentence, and one more.\n");
  const Outcome made = shell(make_model + "tiny-cogvideox b --text lines.txt");
  EXPECT_EQ(made.status, 0) << made.text;
  EXPECT_THAT(made.text, Not(HasSubstr("tokenizer of 1100 ids")));
}

TEST(Presets, FullSizesAreThoseOfTheReleases) {
  struct Expected {
    const char* name;
    DType dtype;
    std::int64_t tensors, parameters;
  };
  for (const Expected& e :
       {Expected{"cogvideox-2b", DType::float16, 736, 1'693'783'872},
        Expected{"cogvideox-5b", DType::bfloat16, 1024, 5'570'283'072},
        Expected{"cogvideox-1.5-5b", DType::bfloat16, 1024, 5'570'676'352},
        // 16 more channels of patches; 17,776 learned positions; ofs.
        Expected{"cogvideox-5b-i2v", DType::bfloat16, 1025, 5'570'283'072 + 196'608 + 54'607'872},
        Expected{"cogvideox-1.5-5b-i2v", DType::bfloat16, 1028,
                 5'570'676'352 + 393'216 + 525'312}}) {
    const ModelPreset preset = model_preset(e.name);
    EXPECT_EQ(preset.dtype, e.dtype);
    const PartSize transformer = part_size(preset, ModelPart::transformer, e.dtype);
    EXPECT_EQ(transformer.tensors, e.tensors);
    EXPECT_EQ(transformer.parameters, e.parameters) << e.name;
    EXPECT_EQ(transformer.bytes, 2 * e.parameters);
    const PartSize vae = part_size(preset, ModelPart::vae, e.dtype);
    EXPECT_EQ(vae.tensors, 436);
    EXPECT_EQ(vae.parameters, 215'583'907);
    const PartSize encoder = part_size(preset, ModelPart::text_encoder, e.dtype);
    EXPECT_EQ(encoder.tensors, 219);
    EXPECT_EQ(encoder.parameters, 4'762'310'656);
  }
}

TEST(Presets, FullSizesOfWanAreThoseOfTheReleases) {
  for (const auto& [name, tensors, parameters, vae_tensors, vae_parameters] :
       {std::tuple{"wan2.1-t2v-1.3b", 825, 1'418'996'800L, 194, 126'892'531L},
        std::tuple{"wan2.1-t2v-14b", 1095, 14'288'491'584L, 194, 126'892'531L},
        std::tuple{"wan2.1-i2v-14b-480p", 1303, 16'394'878'784L, 194, 126'892'531L},
        std::tuple{"wan2.1-i2v-14b-720p", 1303, 16'394'878'784L, 194, 126'892'531L},
        std::tuple{"wan2.2-ti2v-5b", 825, 4'999'787'712L, 196, 704'688'668L}}) {
    const ModelPreset preset = model_preset(name);
    EXPECT_EQ(preset.dtype, DType::bfloat16);
    const auto size = [&](ModelPart part) { return part_size(preset, part, preset.dtype); };
    EXPECT_EQ(size(ModelPart::transformer).tensors, tensors);
    EXPECT_EQ(size(ModelPart::transformer).parameters, parameters) << name;
    EXPECT_EQ(size(ModelPart::vae).tensors, vae_tensors) << name;
    EXPECT_EQ(size(ModelPart::vae).parameters, vae_parameters) << name;
    EXPECT_EQ(size(ModelPart::text_encoder).tensors, 242);
    EXPECT_EQ(size(ModelPart::text_encoder).parameters, 5'680'910'336);
    EXPECT_EQ(preset.parts.contains(ModelPart::image_encoder), tensors == 1303);
    if (tensors != 1303) continue;
    EXPECT_EQ(size(ModelPart::image_encoder).tensors, 519);
    EXPECT_EQ(size(ModelPart::image_encoder).parameters, 630'766'080);
  }
  EXPECT_EQ(model_preset("wan2.1-i2v-14b-480p").scheduler["flow_shift"], 3.0);
  EXPECT_EQ(model_preset("wan2.1-i2v-14b-720p").scheduler["flow_shift"], 5.0);
}

TEST(Presets, Wan2_2A14BHasTwoTransformersOfOneSize) {
  for (const auto& [name, boundary] : {std::pair{"tiny-wan2.2-a14b", 0.875},
                                       {"wan2.2-t2v-a14b", 0.875},
                                       {"tiny-wan2.2-i2v-a14b", 0.9},
                                       {"wan2.2-i2v-a14b", 0.9}}) {
    const ModelPreset preset = model_preset(name);
    EXPECT_EQ(preset.model_index["boundary_ratio"], boundary);
    EXPECT_FALSE(preset.parts.contains(ModelPart::image_encoder));
    EXPECT_EQ(preset.parts.at(ModelPart::transformer_2), preset.parts.at(ModelPart::transformer));
  }
  EXPECT_EQ(part_size(model_preset("wan2.2-t2v-a14b"), ModelPart::transformer_2, DType::bfloat16)
                .parameters,
            14'288'491'584L);
  EXPECT_EQ(part_size(model_preset("wan2.2-i2v-a14b"), ModelPart::transformer_2, DType::bfloat16)
                .parameters,
            14'288'901'184L);
  EXPECT_FALSE(model_preset("wan2.1-t2v-14b").parts.contains(ModelPart::transformer_2));
}

TEST(Presets, ConfigurationsMeanWhatTheReleasesDo) {
  const auto transformer = [](const char* name) {
    return CogVideoXConfig::read(
        Config::parse(model_preset(name).parts.at(ModelPart::transformer).dump(), name));
  };
  const CogVideoXConfig small = transformer("cogvideox-2b");
  EXPECT_FALSE(small.rotary);
  EXPECT_EQ(small.channels(), 1920);
  const CogVideoXConfig large = transformer("cogvideox-5b");
  EXPECT_TRUE(large.rotary);
  EXPECT_EQ(large.channels(), 3072);
  EXPECT_EQ(large.sample_frames, 49);
  const CogVideoXConfig longer = transformer("cogvideox-1.5-5b");
  EXPECT_TRUE(longer.linear_patch);
  EXPECT_EQ(longer.patch.frames, 2);
  EXPECT_EQ(longer.sample_frames, 81);
  const CogVideoXConfig from_image = transformer("cogvideox-5b-i2v");
  EXPECT_TRUE(from_image.rotary && from_image.learned_positions && !from_image.linear_patch);
  EXPECT_EQ(from_image.image_channels(), 16);
  EXPECT_EQ(from_image.sample_tokens(), (Shape{13, 30, 45}));
  const CogVideoXConfig longer_from_image = transformer("cogvideox-1.5-5b-i2v");
  EXPECT_FALSE(longer_from_image.learned_positions);
  EXPECT_EQ(longer_from_image.ofs_channels, 512);
  EXPECT_EQ(longer_from_image.patch_features(), 256);
  for (const char* name : {"cogvideox-5b-i2v", "tiny-cogvideox-1.5-i2v"}) {
    EXPECT_EQ(model_preset(name).model_index["_class_name"], "CogVideoXImageToVideoPipeline");
  }
  EXPECT_EQ(model_preset("cogvideox-5b").model_index["_class_name"], "CogVideoXPipeline");
  EXPECT_EQ(model_preset("cogvideox-1.5-5b-i2v").parts.at(ModelPart::vae)["invert_scale_latents"],
            true);
  EXPECT_FALSE(
      model_preset("cogvideox-5b-i2v").parts.at(ModelPart::vae).contains("invert_scale_latents"));
  EXPECT_EQ(model_preset("cogvideox-2b").parts.at(ModelPart::vae)["scaling_factor"], 1.15258426);
  EXPECT_EQ(model_preset("cogvideox-5b").parts.at(ModelPart::vae)["scaling_factor"], 0.7);
  EXPECT_EQ(model_preset("cogvideox-2b").scheduler["snr_shift_scale"], 3.0);
  EXPECT_EQ(model_preset("cogvideox-1.5-5b").scheduler["snr_shift_scale"], 1.0);
}

TEST(Presets, OpenSorasAreThoseOfTheReleases) {
  const auto size = [](const char* name, ModelPart part) {
    return part_size(model_preset(name), part, DType::float16);
  };
  for (const char* name :
       {"opensora-1.0-16x256x256", "opensora-1.0-16x512x512", "opensora-1.0-64x512x512"}) {
    // Includes the null caption, but not the two position tables of the released files.
    EXPECT_EQ(size(name, ModelPart::transformer).parameters, 759'620'768 + 491'520) << name;
    EXPECT_EQ(size(name, ModelPart::transformer).tensors, 548);
    EXPECT_EQ(size(name, ModelPart::vae).parameters, 83'653'863);
    EXPECT_EQ(size(name, ModelPart::vae).tensors, 248);
    EXPECT_EQ(size(name, ModelPart::text_encoder).parameters, 4'762'310'656);
  }
  EXPECT_EQ(size("opensora-1.2", ModelPart::transformer).parameters, 1'207'643'972 + 1'228'800);
  // Includes four values each of scale and shift.
  EXPECT_EQ(size("opensora-1.2", ModelPart::vae).parameters, 83'653'863 + 309'687'144 + 8);
  const auto config = [](const char* name) {
    return STDiTConfig::read(
        Config::parse(model_preset(name).parts.at(ModelPart::transformer).dump(), name));
  };
  EXPECT_EQ(config("opensora-1.0-16x256x256").input_size, (Shape{16, 32, 32}));
  EXPECT_EQ(config("opensora-1.0-16x256x256").space_scale, 0.5);
  EXPECT_EQ(config("opensora-1.0-64x512x512").input_size, (Shape{64, 64, 64}));
  EXPECT_EQ(config("opensora-1.0-64x512x512").time_scale, 2.0 / 3.0);
  EXPECT_EQ(config("opensora-1.2").kind, STDiTConfig::Kind::v3);
  EXPECT_EQ(config("opensora-1.2").max_text_tokens, 300);
}

TEST(Counts, HaveSeparators) {
  EXPECT_EQ(with_separators(0), "0");
  EXPECT_EQ(with_separators(999), "999");
  EXPECT_EQ(with_separators(1000), "1,000");
  EXPECT_EQ(with_separators(1693783872), "1,693,783,872");
  EXPECT_EQ(with_separators(-123456), "-123,456");
}

}  // namespace
}  // namespace reelmesh::app
