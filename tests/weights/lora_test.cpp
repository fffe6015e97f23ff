#include "weights/lora.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "raw_file.hpp"
#include "support/data_folder.hpp"
#include "support/expect_error.hpp"
#include "support/lora_cases.hpp"
#include "support/temp_folder.hpp"
#include "weights/checkpoint.hpp"
#include "weights/contents.hpp"
#include "weights/lora_changes.hpp"
#include "weights/writer.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempFolder;
using test::write_file;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const fs::path& data() {
  static const fs::path folder = test::data_folder() / "lora";
  return folder;
}

Checkpoint base(const test::LoraCase& of) {
  return Checkpoint::open(test::data_folder() / of.model / "transformer",
                          "diffusion_pytorch_model");
}

Tensor whole(const Checkpoint& checkpoint, const std::string& name, DType dtype = DType::float32) {
  return checkpoint.load(name, checkpoint.tensors().at(name).shape, dtype);
}

class LoraFiles : public testing::TestWithParam<test::LoraCase> {};

TEST_P(LoraFiles, ChangeWeightsAsTheReferenceDoes) {
  const Checkpoint plain = base(GetParam()), changed = plain.with(GetParam().loras());
  const auto reference = SafetensorsFile::open(GetParam().data() / "reference.safetensors");
  int compared = 0;
  for (const auto& [name, info] : plain.tensors()) {
    const Tensor found = whole(changed, name), before = whole(plain, name);
    const std::string stored = fmt::format("{}.rows.{}", GetParam().name, name);
    if (!reference.tensors().contains(stored)) {
      EXPECT_EQ(changed.changes()->find(name), nullptr) << name;
      EXPECT_TRUE(std::ranges::equal(found.span<float>(), before.span<float>())) << name;
      continue;
    }
    const Tensor rows = reference.load(stored, DType::float32);  // every third
    const std::int64_t row = found.numel() / found.shape(0);
    double error = 0, change = 0;
    for (std::int64_t i = 0; i < rows.numel(); ++i) {
      const std::int64_t at = i / row * 3 * row + i % row;
      error = std::max<double>(error, std::abs(rows.data<float>()[i] - found.data<float>()[at]));
      change =
          std::max<double>(change, std::abs(before.data<float>()[at] - found.data<float>()[at]));
    }
    EXPECT_LE(error, 1e-6) << name;
    EXPECT_GT(change, 1e-2) << name;
    ++compared;
  }
  EXPECT_GT(compared, 2);
}

// The bits of an element do not depend on the rows that are read with it.
TEST_P(LoraFiles, GiveTheSameBitsForAllPartsOfATensor) {
  const Checkpoint changed = base(GetParam()).with(GetParam().loras());
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const auto& [name, info] : changed.tensors()) {
      if (changed.changes()->find(name) == nullptr) continue;
      const Tensor all = whole(changed, name, dtype);
      const std::int64_t count = info.shape[0], row = all.numel() / count * size_of(dtype);
      const auto* bytes = static_cast<const std::byte*>(all.raw());
      for (std::int64_t begin = 0, some = 1; begin < count; begin += some, some = some % 7 + 1) {
        some = std::min(some, count - begin);
        const Tensor rows = changed.load_rows(name, info.shape, begin, some, dtype);
        const auto* part = static_cast<const std::byte*>(rows.raw());
        EXPECT_TRUE(std::equal(part, part + some * row, bytes + begin * row)) << name << begin;
        // Rows further apart, as for packing.
        const std::int64_t stride = all.numel() / count + 5;
        std::vector<std::byte> apart(static_cast<std::size_t>(some * stride * size_of(dtype)));
        changed.read_rows(name, info.shape, begin, some, dtype, apart.data(), stride);
        for (std::int64_t i = 0; i < some; ++i) {
          const std::byte* own = apart.data() + i * stride * size_of(dtype);
          EXPECT_TRUE(std::equal(own, own + row, part + i * row)) << name << begin + i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, LoraFiles, testing::ValuesIn(test::lora_cases()),
                         test::name_of_case);
INSTANTIATE_TEST_SUITE_P(FormsOfWan, LoraFiles, testing::ValuesIn(test::wan_lora_cases()),
                         test::name_of_case);

// A checkpoint with small tensors, and LoRAs for it.
class SmallLora : public testing::Test {
 protected:
  struct Entry {
    std::string name;
    Shape shape;
    DType dtype = DType::float32;
  };

  void SetUp() override {
    write(folder_ / "base", "diffusion_pytorch_model",
          {{"blocks.0.attn1.to_q.weight", {3, 2}},
           {"blocks.0.attn1.to_q.bias", {3}},
           {"blocks.0.attn1.to_k.weight", {3, 2}},
           {"blocks.10.attn1.to_q.weight", {3, 2}},
           {"proj.weight", {3, 2, 1, 2}},
           {"norm.weight", {3}},
           {"patch_embedding.weight", {3, 2}},
           {"patch_embedding.bias", {3}},
           {"blocks.0.scale_shift_table", {1, 2, 2}}});
  }
  // Element i of each tensor is i + 1.
  static void write(const fs::path& folder, const std::string& stem,
                    const std::vector<Entry>& entries) {
    std::vector<TensorToWrite> list;
    for (const Entry& e : entries) list.push_back({e.name, e.dtype, e.shape});
    write_safetensors(folder, stem, list, [](std::size_t, Tensor& out) {
      visit_float(out.dtype(), [&](auto type) {
        using T = decltype(type);
        for (std::int64_t i = 0; i < out.numel(); ++i)
          out.data<T>()[i] = T(static_cast<float>(i + 1));
      });
    });
  }
  fs::path lora(const std::vector<Entry>& entries) {
    write(folder_.path(), "lora", entries);
    return folder_ / "lora.safetensors";
  }
  Checkpoint with(const std::vector<Entry>& entries, double scale = 1) {
    return Checkpoint::open(folder_ / "base", "diffusion_pytorch_model")
        .with({{lora(entries), scale}});
  }
  std::string failure(const std::vector<Entry>& entries, Status status = Status::data) {
    try {
      with(entries);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), status);
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  // A LoRA with this metadata or with this adapter_config.json, for to_q with rank 2.
  double lora_factor(const std::string& prefix, const std::string& config) {
    const std::string down = prefix + "blocks.0.attn1.to_q.lora_A.weight",
                      up = prefix + "blocks.0.attn1.to_q.lora_B.weight";
    const bool peft = prefix == "base_model.model.";
    std::string header = "{";
    if (!peft) {
      header += fmt::format(R"("__metadata__":{{"lora_adapter_metadata":{}}},)",
                            nlohmann::json(config).dump());
    }
    header += fmt::format(R"("{}":{{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}},)", down);
    header += fmt::format(R"("{}":{{"dtype":"F32","shape":[3,2],"data_offsets":[16,40]}}}})", up);
    write_file(folder_ / "lora.safetensors", test::raw_file(header, 40));
    if (peft) write_file(folder_ / "adapter_config.json", config);
    return Lora::open(folder_ / "lora.safetensors").modules().begin()->second.factor;
  }

  TempFolder folder_;
};

const std::string q = "transformer.blocks.0.attn1.to_q.";

TEST_F(SmallLora, AddsTheProductTimesAlphaOverRankTimesScale) {
  const Checkpoint changed =
      with({{q + "lora_A.weight", {1, 2}}, {q + "lora_B.weight", {3, 1}}, {q + "lora_B.bias", {3}}},
           0.5);
  // W = 1 … 6, B·A = [1 2; 2 4; 3 6]
  EXPECT_THAT(whole(changed, "blocks.0.attn1.to_q.weight").span<float>(),
              ElementsAre(1.5, 3, 4, 6, 6.5, 9));
  EXPECT_THAT(whole(changed, "blocks.0.attn1.to_q.bias").span<float>(), ElementsAre(1.5, 3, 4.5));
  EXPECT_THAT(whole(changed, "norm.weight").span<float>(), ElementsAre(1, 2, 3));
}

TEST_F(SmallLora, RoundsOnceAfterAdding) {
  // 1 + 1/256 + 1/256 is a bfloat16, 1 + 1/256 rounds to 1.
  const Checkpoint changed =
      with({{q + "lora_A.weight", {2, 2}}, {q + "lora_B.weight", {3, 2}}}, 1.0 / (256 * 7));
  const Tensor found = whole(changed, "blocks.0.attn1.to_q.weight", DType::bfloat16);
  // Row 0 of B·A = [1 2]·[1 2; 3 4] = [7 10]
  EXPECT_EQ(static_cast<float>(found.data<BFloat16>()[0]),
            static_cast<float>(BFloat16(1.0F + 1.0F / 256)));
  const Tensor wide = whole(changed, "blocks.0.attn1.to_q.weight");
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    EXPECT_EQ(found.data<BFloat16>()[i].bits, BFloat16(wide.data<float>()[i]).bits);
  }
}

TEST_F(SmallLora, ChangesConvolutionsLikeMatrices) {
  const Checkpoint changed = with({{"transformer.proj.lora_A.weight", {1, 2, 1, 2}},
                                   {"transformer.proj.lora_B.weight", {3, 1, 1, 1}}});
  EXPECT_THAT(whole(changed, "proj.weight").span<float>(),
              ElementsAre(2, 4, 6, 8, 7, 10, 13, 16, 12, 16, 20, 24));
}

TEST_F(SmallLora, AddsDifferencesTimesTheScaleAlone) {
  const std::string original = "diffusion_model.blocks.0.self_attn.q";
  const Checkpoint changed = with({{original + ".lora_down.weight", {2, 2}},
                                   {original + ".lora_up.weight", {3, 2}},
                                   {original + ".alpha", {}},  // it is 1, so the factor 1/2
                                   {original + ".diff", {3, 2}},
                                   {original + ".diff_b", {3}},
                                   {"diffusion_model.norm.diff", {3}},
                                   {"diffusion_model.blocks.0.diff_m", {1, 2, 2}}},
                                  0.5);
  // W = 1 … 6, B·A = [7 10; 15 22; 23 34]
  EXPECT_THAT(whole(changed, "blocks.0.attn1.to_q.weight").span<float>(),
              ElementsAre(1.5 + 7 / 4.0, 3 + 10 / 4.0, 4.5 + 15 / 4.0, 6 + 22 / 4.0, 7.5 + 23 / 4.0,
                          9 + 34 / 4.0));
  EXPECT_THAT(whole(changed, "blocks.0.attn1.to_q.bias").span<float>(), ElementsAre(1.5, 3, 4.5));
  EXPECT_THAT(whole(changed, "norm.weight").span<float>(), ElementsAre(1.5, 3, 4.5));
  EXPECT_THAT(whole(changed, "blocks.0.scale_shift_table").span<float>(),
              ElementsAre(1.5, 3, 4.5, 6));
  // The table in another form, as a model may ask for it.
  EXPECT_THAT(
      changed.load_rows("blocks.0.scale_shift_table", {2, 2}, 1, 1, DType::float32).span<float>(),
      ElementsAre(4.5, 6));
  EXPECT_TRUE(changed.changes()->left_out().empty());
}

TEST_F(SmallLora, AddsDifferencesWithoutMatrices) {
  const std::vector<Entry> entries{{"lora_unet_blocks_0_self_attn_q.diff_b", {3}},
                                   {"lora_unet_blocks_0.diff_m", {1, 2, 2}}};
  const Checkpoint changed = with(entries);
  EXPECT_THAT(whole(changed, "blocks.0.attn1.to_q.bias").span<float>(), ElementsAre(2, 4, 6));
  EXPECT_THAT(whole(changed, "blocks.0.scale_shift_table").span<float>(), ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(changed.changes()->loras().front().names(), "kohya (lora_unet_MODULE.diff_m)");
  EXPECT_EQ(lora_memory({{folder_ / "lora.safetensors", 1}}).shared, 0);
}

TEST_F(SmallLora, LeavesOutWhatIsForModelsThatBeginFromAnImage) {
  const std::vector<Entry> q_alone{{"diffusion_model.blocks.0.self_attn.q.lora_A.weight", {1, 2}},
                                   {"diffusion_model.blocks.0.self_attn.q.lora_B.weight", {3, 1}}};
  std::vector<Entry> entries = q_alone;
  for (const char* layer :
       {"blocks.0.cross_attn.k_img", "blocks.10.cross_attn.v_img", "img_emb.proj.1"}) {
    entries.push_back({fmt::format("diffusion_model.{}.lora_A.weight", layer), {1, 2}});
    entries.push_back({fmt::format("diffusion_model.{}.lora_B.weight", layer), {3, 1}});
    entries.push_back({fmt::format("diffusion_model.{}.diff_b", layer), {3}});
  }
  entries.push_back({"diffusion_model.img_emb.proj.0.diff", {3}});
  entries.push_back({"diffusion_model.patch_embedding.diff", {3, 4}});
  entries.push_back({"diffusion_model.patch_embedding.diff_b", {3}});
  const Checkpoint alone = with(q_alone);
  std::map<std::string, Tensor> expected;
  for (const auto& [name, info] : alone.tensors()) expected[name] = whole(alone, name);
  const Checkpoint changed = with(entries);
  for (const auto& [name, values] : expected) {
    EXPECT_TRUE(std::ranges::equal(whole(changed, name).span<float>(), values.span<float>()))
        << name;
  }
  EXPECT_THAT(
      changed.changes()->left_out(),
      ElementsAre(testing::AllOf(HasSubstr("patch_embedding.diff' [3, 4] is not used"),
                                 HasSubstr("[3, 2]")),
                  testing::AllOf(HasSubstr("lora.safetensors: 4 layers for images not used"),
                                 HasSubstr("blocks.*.cross_attn.k_img"))));
  EXPECT_THAT(whole(with({{"patch_embedding.diff", {3, 2}}, {"patch_embedding.diff_b", {3}}}),
                    "patch_embedding.bias")
                  .span<float>(),
              ElementsAre(2, 4, 6));
}

TEST_F(SmallLora, TakesAlphaFromTensors) {
  // alpha = 1, rank 2
  const Checkpoint changed = with({{q + "lora_A.weight", {2, 2}},
                                   {q + "lora_B.weight", {3, 2}},
                                   {q + "alpha", {}, DType::bfloat16}});
  EXPECT_EQ(whole(changed, "blocks.0.attn1.to_q.weight").data<float>()[0], 1 + 0.5F * 7);
}

TEST_F(SmallLora, TakesTheRankOfEachModuleAsItsAlphaWhereNoneIsGiven) {
  const Lora found = Lora::open(lora({{q + "lora_A.weight", {2, 2}},
                                      {q + "lora_B.weight", {3, 2}},
                                      {"transformer.proj.lora_A.weight", {1, 2, 1, 2}},
                                      {"transformer.proj.lora_B.weight", {3, 1, 1, 1}}}));
  for (const auto& [name, module] : found.modules()) EXPECT_EQ(module.factor, 1) << name;
  EXPECT_EQ(found.source_of_factors(), "none given");
}

// How a program names the tensors of a module.
struct Form {
  const char* prefix;
  char dot;  // in names of modules
  const char *down, *up;
  const char* shown;  // by Lora::names()

  std::string name(std::string module, const char* ending) const {
    std::ranges::replace(module, '.', dot);
    return prefix + module + ending;
  }
};
constexpr const char *a = ".lora_A.weight", *b = ".lora_B.weight";
constexpr const char *lora_down = ".lora_down.weight", *lora_up = ".lora_up.weight";
const Form forms[] = {
    {"", '.', a, b, "diffusers (MODULE.lora_A.weight)"},
    {"transformer.", '.', ".lora.down.weight", ".lora.up.weight",
     "diffusers (transformer.MODULE.lora.down.weight)"},
    {"lora_unet_", '_', lora_down, lora_up, "kohya (lora_unet_MODULE.lora_down.weight)"},
    {"lora_unet__", '_', lora_down, lora_up, "VideoX-Fun (lora_unet__MODULE.lora_down.weight)"},
    {"lora_transformer_", '_', lora_down, lora_up,
     "kohya (lora_transformer_MODULE.lora_down.weight)"},
    {"lora_transformer__", '_', lora_down, lora_up,
     "VideoX-Fun (lora_transformer__MODULE.lora_down.weight)"},
    {"diffusion_model.", '.', a, b, "ComfyUI (diffusion_model.MODULE.lora_A.weight)"},
    {"diffusion_model.", '.', lora_down, lora_up,
     "ComfyUI (diffusion_model.MODULE.lora_down.weight)"},
    {"model.diffusion_model.", '.', a, b, "ComfyUI (model.diffusion_model.MODULE.lora_A.weight)"},
    {"module.", '.', a, b, "diffusers (module.MODULE.lora_A.weight)"},
    {"module.transformer.", '.', a, b, "diffusers (module.transformer.MODULE.lora_A.weight)"},
    {"transformer.module.", '.', a, b, "diffusers (transformer.module.MODULE.lora_A.weight)"},
    {"unet.", '.', a, b, "diffusers (unet.MODULE.lora_A.weight)"},
    {"base_model.model.", '.', a, b, "PEFT (base_model.model.MODULE.lora_A.weight)"},
    {"base_model.model.module.", '.', a, b, "PEFT (base_model.model.module.MODULE.lora_A.weight)"},
    {"unet.base_model.model.", '.', a, b, "PEFT (unet.base_model.model.MODULE.lora_A.weight)"},
    {"base_model.model.", '.', ".lora_A.default.weight", ".lora_B.default.weight",
     "PEFT (base_model.model.MODULE.lora_A.default.weight)"},
    {"", '.', ".lora_A.default.weight", ".lora_B.default.weight",
     "diffusers (MODULE.lora_A.default.weight)"}};

TEST_F(SmallLora, ReadsTheNamesOfAllPrograms) {
  struct Module {
    const char* name;
    Shape down, up;
  };
  const Module modules[] = {{"blocks.0.attn1.to_q", {2, 2}, {3, 2}},
                            {"blocks.10.attn1.to_q", {1, 2}, {3, 1}},
                            {"proj", {4, 2, 1, 2}, {3, 4, 1, 1}}};
  const auto entries = [&](const Form& form, bool alpha) {
    std::vector<Entry> list;
    for (const Module& module : modules) {
      list.push_back({form.name(module.name, form.down), module.down});
      list.push_back({form.name(module.name, form.up), module.up});
      if (alpha) list.push_back({form.name(module.name, ".alpha"), {}});  // it is 1
    }
    return list;
  };
  const Form plain{"transformer.", '.', a, b, ""};
  for (const bool alpha : {true, false}) {
    const Checkpoint expected = with(entries(plain, alpha), 0.3);
    std::map<std::string, Tensor> values;
    for (const auto& [name, info] : expected.tensors()) {
      values.emplace(name, whole(expected, name));
    }
    for (const Form& form : forms) {
      // Without alphas PEFT says it in a file.
      write_file(folder_ / "adapter_config.json",
                 R"({"r":2,"lora_alpha":2,"rank_pattern":{"blocks.10.attn1.to_q":1,"proj":4},
                     "alpha_pattern":{"blocks.10.attn1.to_q":1,"proj":4}})");
      if (alpha) fs::remove(folder_ / "adapter_config.json");
      const Checkpoint found = with(entries(form, alpha), 0.3);
      for (const auto& [name, value] : values) {
        EXPECT_TRUE(std::ranges::equal(whole(found, name).span<float>(), value.span<float>()))
            << form.shown << ", " << name;
      }
      const Lora& lora = found.changes()->loras().front();
      EXPECT_EQ(lora.names(), form.shown);
      EXPECT_EQ(lora.modules().size(), 3U) << form.shown;
      EXPECT_EQ(lora.modules().count(lora.key_of("blocks.10.attn1.to_q")), 1U) << form.shown;
    }
  }
}

TEST_F(SmallLora, TakesSettingsOfTheTransformerForConvertedNames) {
  const std::string config = R"({"transformer.r":2,"transformer.lora_alpha":3})";
  for (const char* prefix : {"diffusion_model.", "module.transformer.", ""}) {
    EXPECT_EQ(lora_factor(prefix, config), 1.5) << prefix;
  }
}

TEST_F(SmallLora, RefusesUnderscoresThatFitTwoModules) {
  write(folder_ / "base", "diffusion_pytorch_model",
        {{"blocks.0.q.weight", {3, 2}}, {"blocks.0_q.weight", {3, 2}}, {"k.weight", {3, 2}}});
  EXPECT_THAT(failure({{"lora_unet_blocks_0_q.lora_down.weight", {2, 2}},
                       {"lora_unet_blocks_0_q.lora_up.weight", {3, 2}}}),
              testing::AllOf(HasSubstr("lora_unet_blocks_0_q.lora_down.weight"),
                             HasSubstr("'blocks.0.q'"), HasSubstr("'blocks.0_q'")));
  with({{"lora_unet_k.lora_down.weight", {2, 2}}, {"lora_unet_k.lora_up.weight", {3, 2}}});
}

TEST_F(SmallLora, LeavesOutTextEncoders) {
  for (const std::string encoder :
       {"text_encoder.layers.0.", "text_encoder_2.x.", "lora_te_layers_0.", "lora_te1_x."}) {
    const std::vector<Entry> of_encoder{{encoder + "a.lora_A.weight", {2, 2}},
                                        {encoder + "a.lora_B.weight", {3, 2}},
                                        {encoder + "b.lora_down.weight", {2, 2}},
                                        {encoder + "b.lora_up.weight", {3, 2}},
                                        {encoder + "b.alpha", {}},
                                        {encoder + "c.dora_scale", {3}}};
    expect_error(
        Status::data, [&] { Lora::open(lora(of_encoder)); }, "of text encoders only");
    std::vector<Entry> both{{q + "lora_A.weight", {2, 2}}, {q + "lora_B.weight", {3, 2}}};
    EXPECT_EQ(Lora::open(lora(both)).left_out(), "");
    both.insert(both.end(), of_encoder.begin(), of_encoder.end());
    const Checkpoint changed = with(both);
    EXPECT_EQ(whole(changed, "blocks.0.attn1.to_q.weight").data<float>()[0], 1 + 7);
    EXPECT_THAT(changed.changes()->loras().front().left_out(),
                testing::AllOf(HasSubstr("lora.safetensors: 3 modules of text encoders"),
                               HasSubstr("the 1 of the transformer")));
  }
}

TEST_F(SmallLora, RefusesOtherAdapters) {
  const Entry down{"lora_unet_blocks_0_attn1_to_q.lora_down.weight", {2, 2}},
      up{"lora_unet_blocks_0_attn1_to_q.lora_up.weight", {3, 2}};
  const std::string k = "lora_unet_blocks_0_attn1_to_k.";
  const struct {
    std::string name;
    const char *kind, *advice;
  } table[] = {
      {k + "hada_w1_a", "LoHa", "model.transformer"},
      {k + "lokr_w1", "LoKr", "model.transformer"},
      {k + "lokr_w2_b", "LoKr", "model.transformer"},
      {k + "dora_scale", "DoRA", "model.transformer"},
      {"transformer.x.lora_magnitude_vector", "DoRA", "model.transformer"},
      {"model.diffusion_model.transformer.layers.0.attention.dense.matrix_A.0", "SAT",
       "tools/export_sat_lora_weight.py"},
      {"transformer.layers.0.attention.dense.matrix_B.0", "SAT", "export_sat_lora_weight"}};
  for (const auto& row : table) {
    const std::string message = failure({down, up, {k + "alpha", {}}, {row.name, {3, 2}}});
    for (const std::string& text : {std::string("lora.safetensors"), row.name,
                                    std::string(row.kind), std::string(row.advice)}) {
      EXPECT_THAT(message, HasSubstr(text));
    }
  }
}

TEST_F(SmallLora, RefusesPickles) {
  for (const auto& [name, bytes, what] :
       {std::tuple{"lora.bin", "PK\3\4 and more", "a zip archive, as torch.save writes"},
        {"lora.pt", "\x80\2}q and more", "a Python pickle, as torch.save writes"}}) {
    write_file(folder_ / name, bytes);
    expect_error(
        Status::data, [&] { Lora::open(folder_ / name); }, name, what, "save_file(torch.load(");
  }
  expect_error(
      Status::no_input, [&] { Lora::open(folder_ / "absent.bin"); }, "absent.bin");
  fs::rename(folder_ / "lora.bin", folder_ / "pytorch_lora_weights.bin");
  expect_error(
      Status::data, [&] { Lora::open(folder_.path()); }, "pytorch_lora_weights.bin", "torch.save");
}

TEST_F(SmallLora, ChangesNothingAtScaleZero) {
  const Checkpoint changed = with(
      {{q + "lora_A.weight", {1, 2}}, {q + "lora_B.weight", {3, 1}}, {q + "lora_B.bias", {3}}}, 0);
  EXPECT_EQ(changed.changes()->find("blocks.0.attn1.to_q.weight"), nullptr);
  EXPECT_EQ(changed.changes()->find("blocks.0.attn1.to_q.bias"), nullptr);
  EXPECT_THAT(whole(changed, "blocks.0.attn1.to_q.bias").span<float>(), ElementsAre(1, 2, 3));
}

TEST_F(SmallLora, NeedsNoConfigOfPeftIfEachModuleHasAnAlpha) {
  const std::string peft_q = "base_model.model.blocks.0.attn1.to_q.",
                    peft_k = "base_model.model.blocks.0.attn1.to_k.";
  std::vector<Entry> entries{{peft_q + "lora_A.weight", {2, 2}},
                             {peft_q + "lora_B.weight", {3, 2}},
                             {peft_k + "lora_A.weight", {4, 2}},
                             {peft_k + "lora_B.weight", {3, 4}},
                             {peft_q + "alpha", {}}};
  expect_error(
      Status::no_input, [&] { Lora::open(lora(entries)); }, "adapter_config.json: not found");
  entries.push_back({peft_k + "alpha", {}});
  const Lora found = Lora::open(lora(entries));  // alpha = 1
  EXPECT_EQ(found.modules().at("blocks.0.attn1.to_q").factor, 0.5);
  EXPECT_EQ(found.modules().at("blocks.0.attn1.to_k").factor, 0.25);
  EXPECT_EQ(found.source_of_factors(), "tensors alpha");
  write_file(folder_ / "adapter_config.json", R"({"r":2,"lora_alpha":3})");
  expect_error(
      Status::data, [&] { Lora::open(folder_ / "lora.safetensors"); }, "alpha is given twice");
}

TEST_F(SmallLora, TakesFactorsFromConfigs) {
  for (const std::string prefix : {"transformer.", "", "base_model.model."}) {
    const std::string k = prefix == "transformer." ? prefix : "";
    const auto config = [&](const std::string& more) {
      return fmt::format(R"({{"{0}r":2,"{0}lora_alpha":3{1}}})", k,
                         more.empty() ? "" : fmt::format(R"(,"{}{})", k, more));
    };
    EXPECT_EQ(lora_factor(prefix, config("")), 1.5);
    EXPECT_EQ(lora_factor(prefix, config(R"(use_rslora":true)")), 3 / std::sqrt(2.0));
    EXPECT_EQ(lora_factor(prefix, config(R"(alpha_pattern":{"attn1.to_q":5})")), 2.5);
    EXPECT_EQ(lora_factor(prefix, config(R"(alpha_pattern":{"^attn1.to_q":5})")), 1.5)
        << "not the whole name";
    EXPECT_EQ(lora_factor(prefix, config(R"(alpha_pattern":{"^blocks\\.0.attn1.to_q":5})")), 2.5);
    EXPECT_EQ(lora_factor(prefix, config(R"(alpha_pattern":{"n1.to_q":5})")), 1.5)
        << "not from the beginning of a part";
    EXPECT_EQ(lora_factor(prefix, config(R"(init_lora_weights":"gaussian")")), 1.5);
    const auto refused = [&](const std::string& more, const std::string& text) {
      expect_error(
          Status::data, [&] { lora_factor(prefix, config(more)); }, text);
    };
    refused(R"(rank_pattern":{"to_q":4})", "has rank 2");
    refused(R"(use_dora":true)", "use_dora");
    refused(R"(init_lora_weights":"pissa_niter_4")", "pissa_niter_4");
    refused(R"(peft_type":"LOHA")", "LOHA");
    refused(R"(alpha_pattern":{".*to_q":5})", "regular expression");
    refused(R"(alpha_pattern":{"to_q":1e300})", "1e+300");
    refused(R"(alpha_pattern":{"to_q":5,"attn1.to_q":4})", "attn1.to_q");
    refused(R"(use_rslora":"yes")", "use_rslora");
  }
}

TEST_F(SmallLora, NeedsTheConfigOfPeft) {
  expect_error(
      Status::no_input,
      [&] {
        Lora::open(lora({{"base_model.model.blocks.0.attn1.to_q.lora_A.weight", {2, 2}},
                         {"base_model.model.blocks.0.attn1.to_q.lora_B.weight", {3, 2}}}));
      },
      "adapter_config.json");
}

TEST_F(SmallLora, NamesWhatFitsNothing) {
  std::vector<Entry> entries{{q + "lora_A.weight", {2, 2}}, {q + "lora_B.weight", {3, 2}}};
  for (const char* module : {"blocks.1.attn1.to_k", "blocks.11.attn1.to_q", "x", "y"}) {
    entries.push_back({fmt::format("transformer.{}.lora_A.weight", module), {2, 2}});
    entries.push_back({fmt::format("transformer.{}.lora_B.weight", module), {3, 2}});
  }
  EXPECT_THAT(failure(entries),
              testing::AllOf(HasSubstr("lora.safetensors"),
                             HasSubstr("'transformer.blocks.1.attn1.to_k.lora_A.weight' (nearest: "
                                       "'blocks.0.attn1.to_k')"),
                             HasSubstr("'transformer.blocks.11.attn1.to_q.lora_A.weight' (nearest: "
                                       "'blocks.10.attn1.to_q')"),
                             HasSubstr("and 1 more"), Not(HasSubstr("transformer.y"))));
  EXPECT_THAT(failure({{q + "lora_A.weight", {2, 2}},
                       {q + "lora_B.weight", {3, 2}},
                       {"transformer.blocks.0.attn1.to_q.weight", {3, 2}}}),
              HasSubstr("'transformer.blocks.0.attn1.to_q.weight'"));
}

TEST_F(SmallLora, RefusesFilesThatAreNotWhole) {
  const Entry down{q + "lora_A.weight", {2, 2}}, up{q + "lora_B.weight", {3, 2}};
  const struct {
    std::vector<Entry> entries;
    std::vector<const char*> texts;
  } table[] = {
      {{down}, {"to_q.lora_A.weight", "without the lora_B"}},
      {{up}, {"to_q.lora_B.weight", "without the lora_A"}},
      {{down, up, {"transformer.x.alpha", {}}}, {"transformer.x.alpha", "without the lora_A"}},
      {{down, {q + "lora_B.weight", {3, 4}}}, {"[3, 4]", "[out, 2]", "rank 2"}},
      {{down, {q + "lora_B.weight", {4, 2}}}, {"[4, 2]", "[3, 2]", "blocks.0.attn1.to_q.weight"}},
      {{{q + "lora_A.weight", {2, 3}}, up}, {"[2, 3]", "[2, 2]"}},
      {{{q + "lora_A.weight", {0, 2}}, {q + "lora_B.weight", {3, 0}}},
       {"[0, 2]", "a rank of 1 to"}},
      {{{q + "lora_A.weight", {4097, 2}}, {q + "lora_B.weight", {3, 4097}}}, {"1 to 4096"}},
      {{{q + "lora_A.weight", {2}}, up}, {"[2]", "more axes"}},
      {{down, up, {q + "lora_B.bias", {2}}}, {"lora_B.bias", "[2]", "[3]"}},
      {{{"transformer.blocks.0.attn1.to_k.lora_A.weight", {2, 2}},
        {"transformer.blocks.0.attn1.to_k.lora_B.weight", {3, 2}},
        {"transformer.blocks.0.attn1.to_k.lora_B.bias", {3}}},
       {"to_k.lora_B.bias", "has none"}},
      {{{"transformer.norm.lora_A.weight", {1, 1}}, {"transformer.norm.lora_B.weight", {3, 1}}},
       {"norm.weight", "[3]"}},
      {{down, up, {q + "lora.up.weight", {3, 2}}}, {"the same part"}},
      {{down, {"blocks.0.attn1.to_q.lora_B.weight", {3, 2}}}, {"begins with"}},
      {{{"lora_unet_blocks_0_attn1_to_qq.lora_down.weight", {2, 2}},
        {"lora_unet_blocks_0_attn1_to_qq.lora_up.weight", {3, 2}}},
       {"lora_unet_blocks_0_attn1_to_qq.lora_down.weight", "nearest: 'blocks.0.attn1.to_q'"}},
      {{{"lora_unet_a_b.lora_down.weight", {2, 2}}}, {"without the lora_B"}},
      {{down, up, {q + "alpha", {2}}}, {"alpha", "expected one number"}},
      {{down, up, {q + "diff", {2, 3}}}, {"to_q.diff", "[2, 3]", "to_q.weight", "[3, 2]"}},
      {{{"blocks.0.attn1.to_k.diff_b", {3}}}, {"to_k.diff_b", "nothing that fits"}},
      {{{"blocks.1.diff_m", {1, 2, 2}}}, {"blocks.1.diff_m", "nothing that fits"}},
      {{{"blocks.1.self_attn.q.diff", {3, 2}}},
       {"blocks.1.self_attn.q.diff", "nearest: 'blocks.0.attn1.to_q'"}},
      {{{"transformer.x.weight", {2}}}, {"no tensor of a LoRA", "transformer.x.weight"}},
  };
  for (const auto& row : table) {
    const std::string message = failure(row.entries);
    EXPECT_THAT(message, HasSubstr("lora.safetensors"));
    for (const char* text : row.texts) EXPECT_THAT(message, HasSubstr(text));
  }
}

TEST_F(SmallLora, SaysWhichFileIsMissingOrDamaged) {
  expect_error(
      Status::no_input, [&] { Lora::open(folder_ / "none.safetensors"); }, "none.safetensors");
  expect_error(
      Status::no_input, [&] { Lora::open(folder_.path()); }, "pytorch_lora_weights.safetensors");
  write_file(folder_ / "bad.safetensors", "PK\3\4 not safetensors at all");
  expect_error(
      Status::data, [&] { Lora::open(folder_ / "bad.safetensors"); }, "bad.safetensors");
}

std::string hash_with(const std::vector<LoraFile>& loras) {
  ModelPaths paths{.root = test::data_folder() / "cogvideox" / "sincos", .loras = loras};
  paths.complete();
  const ModelContents model(paths);
  TensorHashes hashes;
  for (const auto& tensor : model.tensors()) hashes.push_back(model.tensor_hash(tensor));
  return model.hash(hashes);
}

TEST(LoraFingerprint, DependsOnFilesScalesAndOrder) {
  const fs::path one = data() / "metadata.safetensors", other = data() / "down_up.safetensors";
  const TempFolder folder;
  const fs::path copy = folder / "copy.safetensors", changed = folder / "changed.safetensors";
  fs::copy(one, copy);
  fs::copy(one, changed);
  {
    std::fstream file(changed, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\1');
  }
  const std::string before = hash_with({{one, 1}});
  EXPECT_EQ(hash_with({{copy, 1}}), before);
  const std::vector<std::vector<LoraFile>> unlike{
      {}, {{one, 0.5}}, {{other, 1}}, {{one, 1}, {one, 1}}, {{changed, 1}}};
  for (const auto& loras : unlike) EXPECT_NE(hash_with(loras), before);
  EXPECT_NE(hash_with({{one, 1}, {other, 1}}), hash_with({{other, 1}, {one, 1}}));
}

TEST_F(SmallLora, NeedsMemoryForAFewMatrices) {
  const fs::path file = lora({{q + "lora_A.weight", {2, 2}}, {q + "lora_B.weight", {3, 2}}});
  const LoraMemory one = lora_memory({{file, 1}}), two = lora_memory({{file, 1}, {file, 2}});
  EXPECT_EQ(one.shared, 3 * 2 * 32 * 4) << "three of 2 rows, padded to 32 columns";
  EXPECT_EQ(two.shared, 2 * one.shared);
  EXPECT_EQ(lora_memory({}).per_thread, 0);
}

}  // namespace
}  // namespace reelmesh
