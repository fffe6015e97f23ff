// Output of `reelmesh inspect` for complete and for damaged checkpoints.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "models/checkpoints/random_model.hpp"
#include "models/common/random_weights.hpp"
#include "scratch.hpp"
#include "shell.hpp"
#include "support/temp_folder.hpp"
#include "weights/writer.hpp"

namespace reelmesh::app {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Inspect : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    const Outcome made = shell(program + " make-model tiny-cogvideox model");
    ASSERT_EQ(made.status, 0) << made.text;
  }
  static Outcome inspect() { return shell(program + " inspect model"); }

  /// Rewrites the weights of a part after `change` modified its list of tensors.
  template <class Change>
  static void rewrite(ModelPart part, Change&& change, std::int64_t shard = 1 << 30) {
    const Config config = Config::read(fs::path("model") / part_folder(part) / "config.json");
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, shape] : expected_tensors(part, config)) {
      tensors.push_back({name, DType::float32, shape});
    }
    change(tensors);
    const fs::path folder = fs::path("model") / part_folder(part);
    fs::remove(folder / (std::string(weights_stem(part)) + ".safetensors"));
    write_safetensors(
        folder, weights_stem(part), tensors,
        [&](std::size_t i, Tensor& out) {
          if (out.dtype() != DType::int32) fill_random(out, tensors[i].name, 1, {});
        },
        shard);
  }
  static void change_json(const fs::path& file, const char* key, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(test::read_file(file));
    json[key] = value;
    test::write_file(file, json.dump());
  }
};

TEST(InspectPresets, TinyOnesAreWhole) {
  for (const char* name :
       {"tiny-cogvideox", "tiny-cogvideox-rotary", "tiny-cogvideox-1.5", "tiny-cogvideox-i2v",
        "tiny-cogvideox-1.5-i2v", "tiny-stdit", "tiny-stdit3", "tiny-wan", "tiny-wan-i2v"}) {
    const test::TempFolder folder;
    const std::string model = (folder / "model").string();
    ASSERT_EQ(shell(program + " make-model " + name + " " + model).status, 0);
    const Outcome seen = shell(program + " inspect " + model);
    EXPECT_EQ(seen.status, 0) << seen.text;
    EXPECT_THAT(seen.text, Not(HasSubstr("missing")));
    EXPECT_THAT(seen.text, Not(HasSubstr("unexpected")));
  }
}

TEST(InspectWan, SaysWhatAModelForImagesHolds) {
  const test::TempFolder folder;
  const std::string model = (folder / "model").string();
  ASSERT_EQ(shell(program + " make-model tiny-wan-i2v " + model).status, 0);
  const auto look = [&] { return shell(program + " inspect " + model); };
  const Outcome seen = look();
  EXPECT_EQ(seen.status, 0) << seen.text;
  for (const char* part :
       {"16 latent channels and 20 of an image", "rows of an image of 48 channels",
        "image_encoder: CLIPVisionModel", "3 layers, of which 2 are used, 4 heads of 12 channels",
        "56 x 56 pixels in patches of 14", "made from text and an image (prompt.image)"}) {
    EXPECT_THAT(seen.text, HasSubstr(part));
  }
  fs::remove_all(fs::path(model) / "image_processor");
  EXPECT_EQ(look().status, 66);
  fs::remove_all(fs::path(model) / "image_encoder");
  EXPECT_EQ(look().status, 66) << look().text;
}

TEST(InspectOpenSora, SaysWhatACheckpointHolds) {
  const Outcome seen = shell(program + " inspect " + REELMESH_TEST_DATA + "/opensora/v1_0");
  EXPECT_EQ(seen.status, 0) << seen.text;
  for (const char* part :
       {"OpenSoraPipeline", "transformer: STDiT", "2 spatial and 2 temporal layers, 5 heads of 8",
        "vae: AutoencoderKL", "scheduler: IDDPM", "8 steps, guidance 7",
        "16 frames of 112 x 80 pixels (height, width), 12 frames a second, 8 steps, guidance 7"}) {
    EXPECT_THAT(seen.text, HasSubstr(part));
  }
}

TEST(InspectImageToVideo, SaysWhatACheckpointHolds) {
  const auto inspect = [](const char* kind) {
    return shell(program + " inspect " + REELMESH_TEST_DATA + "/cogvideox/" + kind);
  };
  const Outcome learned = inspect("i2v");
  EXPECT_EQ(learned.status, 0) << learned.text;
  for (const char* part :
       {"CogVideoXImageToVideoPipeline", "5 heads of 16 channels, rotary and learned positions",
        "4 latent channels and 4 of an image", "made from text and an image (prompt.image)"}) {
    EXPECT_THAT(learned.text, HasSubstr(part));
  }
  EXPECT_THAT(learned.text, Not(HasSubstr("unexpected")));
  const Outcome ofs = inspect("i2v_1_5");
  EXPECT_EQ(ofs.status, 0) << ofs.text;
  EXPECT_THAT(ofs.text,
              HasSubstr("7 heads of 16 channels, rotary positions, patches of 2 x 2 x 2"));
}

TEST_F(Inspect, SaysWhatACheckpointHolds) {
  const Outcome seen = inspect();
  EXPECT_EQ(seen.status, 0);
  for (const char* part :
       {"model: CogVideoXPipeline", "transformer: CogVideoXTransformer3DModel",
        "2 layers, 6 heads of 16 channels, sin-cos positions",
        "1 file, 64 tensors, 415,488 parameters", "1,661,952 bytes (1.58 MiB): F32 1,661,952",
        "the encoder is complete; clips from text do not need it", "tokenizer: T5Tokenizer",
        "1,100 ids", "scheduler: CogVideoXDDIMScheduler",
        "made from text, or text and a video (prompt.video)",
        "9 frames of 64 x 96 pixels (height, width), 8 frames a second"}) {
    EXPECT_THAT(seen.text, HasSubstr(part));
  }
}

TEST_F(Inspect, CountsShardsAndTypes) {
  rewrite(
      ModelPart::transformer,
      [](std::vector<TensorToWrite>& tensors) { tensors.front().dtype = DType::bfloat16; },
      1'000'000);
  const Outcome seen = inspect();
  EXPECT_EQ(seen.status, 0) << seen.text;
  EXPECT_THAT(seen.text, HasSubstr("2 files, 64 tensors, 415,488 parameters"));
  EXPECT_THAT(seen.text, HasSubstr("BF16 "));
}

TEST_F(Inspect, ListsWhatIsMissingMisshapenOrUnexpected) {
  rewrite(ModelPart::transformer, [](std::vector<TensorToWrite>& tensors) {
    std::erase_if(tensors, [](const TensorToWrite& t) { return t.name == "proj_out.bias"; });
    for (TensorToWrite& tensor : tensors) {
      if (tensor.name == "norm_final.weight") tensor.shape = {95};
      if (tensor.name == "norm_final.bias") tensor.dtype = DType::int32;
    }
    tensors.push_back({"something.else", DType::float32, {3}});
  });
  const Outcome seen = inspect();
  EXPECT_EQ(seen.status, 65);
  EXPECT_THAT(seen.text, HasSubstr("1 missing:\n    proj_out.bias\n"));
  EXPECT_THAT(seen.text, HasSubstr("norm_final.weight [95], expected [96]"));
  EXPECT_THAT(seen.text, HasSubstr("norm_final.bias: I32"));
  EXPECT_THAT(seen.text, HasSubstr("1 unexpected (never read):\n    something.else\n"));
  EXPECT_THAT(seen.text, HasSubstr("reelmesh: error: model cannot be run: model/transformer: 1 "
                                   "tensors are missing, 1 have another shape, 1 another type\n"));
}

TEST_F(Inspect, UnexpectedTensorsAreNoHindrance) {
  rewrite(ModelPart::text_encoder, [](std::vector<TensorToWrite>& tensors) {
    tensors.push_back({"something.else", DType::float32, {3}});
  });
  const Outcome seen = inspect();
  EXPECT_EQ(seen.status, 0) << seen.text;
  EXPECT_THAT(seen.text, HasSubstr("something.else"));
}

TEST_F(Inspect, CutsLongLists) {
  change_json("model/transformer/config.json", "num_layers", 3);
  const Outcome seen = inspect();
  EXPECT_EQ(seen.status, 65);
  EXPECT_THAT(seen.text, HasSubstr("24 missing:\n    transformer_blocks.2.attn1.norm_k.bias\n"));
  EXPECT_THAT(seen.text, HasSubstr("and 4 more\n"));
}

TEST_F(Inspect, ClipsFromTextDoNotNeedTheEncoderOfTheVae) {
  rewrite(ModelPart::vae, [](std::vector<TensorToWrite>& tensors) {
    std::erase_if(tensors, [](const TensorToWrite& t) { return t.name.starts_with("encoder."); });
  });
  const Outcome seen = inspect();
  EXPECT_EQ(seen.status, 0) << seen.text;
  EXPECT_THAT(seen.text, HasSubstr("the encoder is absent; clips from text do not need it"));
  EXPECT_THAT(seen.text, HasSubstr("made from text\n"));
}

TEST_F(Inspect, ClipsFromAnImageNeedTheEncoderOfTheVae) {
  ASSERT_EQ(shell("rm -r model && " + program + " make-model tiny-cogvideox-i2v model").status, 0);
  rewrite(ModelPart::vae, [](std::vector<TensorToWrite>& tensors) {
    std::erase_if(tensors,
                  [](const TensorToWrite& t) { return t.name == "encoder.conv_in.conv.weight"; });
  });
  const Outcome seen = inspect();
  EXPECT_EQ(seen.status, 65) << seen.text;
  EXPECT_THAT(seen.text, HasSubstr("1 missing:\n    encoder.conv_in.conv.weight\n"));
}

TEST_F(Inspect, MissingFoldersAre66) {
  EXPECT_EQ(shell(program + " inspect nowhere").status, 66);
  for (const char* part : {"vae", "tokenizer", "scheduler", "model_index.json"}) {
    fs::rename(std::string("model/") + part, "away");
    const Outcome seen = inspect();
    EXPECT_EQ(seen.status, 66) << part << "\n" << seen.text;
    EXPECT_THAT(seen.text, HasSubstr(part));
    fs::rename("away", std::string("model/") + part);
  }
  EXPECT_EQ(inspect().status, 0);
}

TEST_F(Inspect, CountsTheSentinelsOfTheTokenizer) {
  change_json("model/tokenizer/tokenizer_config.json", "extra_ids", 0);
  const Outcome without = inspect();
  EXPECT_EQ(without.status, 0) << without.text;
  EXPECT_THAT(without.text, HasSubstr("tokenizer: T5Tokenizer\n  1,000 ids, from spiece.model\n"));
  change_json("model/tokenizer/tokenizer_config.json", "extra_ids", 40000);
  const Outcome too_many = inspect();
  EXPECT_EQ(too_many.status, 65);
  EXPECT_THAT(too_many.text, HasSubstr("41,000 ids"));
  change_json("model/tokenizer/tokenizer_config.json", "extra_ids", "many");
  const Outcome wrong = inspect();
  EXPECT_EQ(wrong.status, 65);
  EXPECT_THAT(wrong.text, HasSubstr("tokenizer_config.json: 'extra_ids' is \"many\""));
}

TEST_F(Inspect, DamagedFilesAre65AndTheOthersAreStillShown) {
  const fs::path weights = "model/transformer/diffusion_pytorch_model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1);
  const Outcome seen = inspect();
  EXPECT_EQ(seen.status, 65);
  EXPECT_THAT(seen.text, HasSubstr("not usable: model/transformer/"));
  EXPECT_THAT(seen.text, HasSubstr("1 file, 240 tensors, 730,003 parameters"));
}

TEST_F(Inspect, PartsThatDoNotFitAre65) {
  change_json("model/scheduler/scheduler_config.json", "prediction_type", "epsilon");
  const Outcome scheduler = inspect();
  EXPECT_EQ(scheduler.status, 65);
  EXPECT_THAT(scheduler.text, HasSubstr("prediction_type"));
  change_json("model/scheduler/scheduler_config.json", "prediction_type", "v_prediction");
  change_json("model/model_index.json", "_class_name", "HunyuanVideoPipeline");
  EXPECT_EQ(inspect().status, 65);
  change_json("model/model_index.json", "_class_name", "CogVideoXPipeline");
  EXPECT_EQ(inspect().status, 0);
}

TEST_F(Inspect, AndRunRefuseTheSameClasses) {
  const auto both = [](int status, const std::string& told) {
    for (const std::string& command :
         {program + " inspect model",
          program + " plan --ranks 1 --prompt.text one --model.path model"}) {
      const Outcome seen = shell(command);
      EXPECT_EQ(seen.status, status) << command << "\n" << seen.text;
      EXPECT_THAT(seen.text, HasSubstr(told));
    }
  };
  const auto change = [&](const std::string& file, const char* key, const nlohmann::json& other,
                          int status, const std::string& told) {
    const std::string before = test::read_file("model/" + file);
    change_json("model/" + file, key, other);
    both(status, told);
    test::write_file("model/" + file, before);
  };
  change("transformer/config.json", "_class_name", "HunyuanVideoTransformer3DModel", 65,
         "transformer/config.json: the class is HunyuanVideoTransformer3DModel, expected "
         "CogVideoXTransformer3DModel");
  change("transformer/config.json", "_class_name", "STDiT3", 65, "STDiT3");
  change("vae/config.json", "_class_name", "AutoencoderKLWan", 65,
         "vae/config.json: the class is AutoencoderKLWan, expected AutoencoderKLCogVideoX");
  change("text_encoder/config.json", "architectures", nlohmann::json::array({"UMT5EncoderModel"}),
         65, "text_encoder/config.json: the class is UMT5EncoderModel, expected T5EncoderModel");
  // The class in model_index.json is the one that diffusers makes.
  const auto in_index = [](const char* name) { return nlohmann::json::array({"diffusers", name}); };
  change("scheduler/scheduler_config.json", "_class_name", "EulerDiscreteScheduler", 0, "");
  change("model_index.json", "scheduler", in_index("EulerDiscreteScheduler"), 65,
         "model_index.json: scheduler: found the class EulerDiscreteScheduler, expected "
         "CogVideoXDDIMScheduler or CogVideoXDPMScheduler");
  change("model_index.json", "transformer", in_index("STDiT3"), 65,
         "model/transformer/config.json: the class is CogVideoXTransformer3DModel, expected "
         "STDiT3, as model/model_index.json: transformer says");
  change("model_index.json", "vae", in_index("AutoencoderKL"), 65, "expected AutoencoderKL, as");
  change("model_index.json", "text_encoder", in_index("UMT5EncoderModel"), 65,
         "the class is T5EncoderModel, expected UMT5EncoderModel, as");
  change("model_index.json", "tokenizer", in_index("GemmaTokenizer"), 65,
         "model_index.json: tokenizer: found the class GemmaTokenizer, expected T5Tokenizer");
  change("tokenizer/tokenizer_config.json", "extra_ids", 40000, 65, "41000 ids");
  // The encoder of a whole T5 is the same. A config may name no class.
  change("text_encoder/config.json", "architectures",
         nlohmann::json::array({"T5ForConditionalGeneration"}), 0, "");
  change("text_encoder/config.json", "architectures", nullptr, 0, "");
  change("transformer/config.json", "_class_name", nullptr, 0, "");
}

}  // namespace
}  // namespace reelmesh::app
