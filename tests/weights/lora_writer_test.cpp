#include "weights/lora_writer.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"
#include "weights/lora.hpp"

namespace reelmesh {
namespace {

using test::TempFolder;

Tensor numbered(const Shape& shape, float first) {
  Tensor values = Tensor::empty(shape, DType::float32);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.data<float>()[i] = first + static_cast<float>(i);
  }
  return values;
}

LoraToWrite example() {
  return {
      .rank = 2,
      .alpha = 3,
      .targets = {"to_q", "ff.net.0.proj"},
      .modules = {
          {"transformer_blocks.0.attn1.to_q", 3, numbered({2, 4}, 1), numbered({3, 2}, 9)},
          {"transformer_blocks.1.ff.net.0.proj", 3, numbered({2, 3}, -7), numbered({5, 2}, 0.5F)}}};
}

TEST(LoraWriter, WritesWhatIsReadBack) {
  const TempFolder folder;
  const LoraToWrite written = example();
  write_lora(folder / "lora", written);
  const Lora lora = Lora::open(folder / "lora");
  EXPECT_EQ(lora.path().filename(), "pytorch_lora_weights.safetensors");
  EXPECT_EQ(lora.source_of_factors(), "lora_adapter_metadata");
  EXPECT_TRUE(lora.others().empty());
  ASSERT_EQ(lora.modules().size(), 2U);
  for (const LoraMatrices& matrices : written.modules) {
    const LoraModule& module = lora.modules().at(matrices.module);
    EXPECT_EQ(module.rank, 2);
    EXPECT_EQ(module.factor, 1.5);
    EXPECT_EQ(module.down, "transformer." + matrices.module + ".lora_A.weight");
    EXPECT_EQ(module.up, "transformer." + matrices.module + ".lora_B.weight");
    for (const auto& [name, expected] :
         {std::pair(module.down, &matrices.down), std::pair(module.up, &matrices.up)}) {
      EXPECT_EQ(lora.file().tensors().at(name).dtype, "F32");
      const Tensor found = lora.file().load(name, DType::float32);
      ASSERT_EQ(found.shape(), expected->shape());
      EXPECT_TRUE(std::equal(found.data<float>(), found.data<float>() + found.numel(),
                             expected->data<float>()));
    }
  }
}

TEST(LoraWriter, DescribesTheAdapterAsPeft) {
  const TempFolder folder;
  LoraToWrite lora = example();
  const auto metadata = [&] {
    write_lora(folder.path(), lora);
    const Lora found = Lora::open(folder.path());
    EXPECT_EQ(found.file().metadata().at("format"), "pt");
    return nlohmann::json::parse(found.file().metadata().at("lora_adapter_metadata"));
  };
  const nlohmann::json first = metadata();
  EXPECT_EQ(first.at("transformer.r"), 2);
  EXPECT_TRUE(first.at("transformer.lora_alpha").is_number_integer());
  EXPECT_EQ(first.at("transformer.lora_alpha"), 3);
  EXPECT_EQ(first.at("transformer.target_modules"),
            (std::vector<std::string>{"to_q", "ff.net.0.proj"}));
  EXPECT_EQ(first.at("transformer.peft_type"), "LORA");
  EXPECT_TRUE(first.at("transformer.rank_pattern").empty());
  EXPECT_TRUE(first.at("transformer.alpha_pattern").empty());
  lora.alpha = 0.25;  // an earlier file is replaced
  for (LoraMatrices& module : lora.modules) module.alpha = 0.25;
  EXPECT_EQ(metadata().at("transformer.lora_alpha"), 0.25);
  EXPECT_EQ(Lora::open(folder.path()).modules().begin()->second.factor, 0.125);
}

TEST(LoraWriter, NamesModulesWithOtherRanksOrAlphas) {
  const TempFolder folder;
  LoraToWrite lora = example();
  const std::string wide = "transformer_blocks.1.attn1.to_q",
                    other_alpha = "transformer_blocks.2.attn1.to_q";
  lora.modules.push_back({wide, 3, numbered({5, 4}, 2), numbered({3, 5}, 4)});
  lora.modules.push_back({other_alpha, 0.5, numbered({2, 4}, 3), numbered({3, 2}, 5)});
  write_lora(folder.path(), lora);
  const Lora found = Lora::open(folder.path());
  const auto metadata = nlohmann::json::parse(found.file().metadata().at("lora_adapter_metadata"));
  EXPECT_EQ(metadata.at("transformer.r"), 2);
  EXPECT_EQ(metadata.at("transformer.rank_pattern"), (nlohmann::json{{wide, 5}}));
  EXPECT_EQ(metadata.at("transformer.alpha_pattern"), (nlohmann::json{{other_alpha, 0.5}}));
  EXPECT_EQ(found.modules().at(wide).rank, 5);
  EXPECT_EQ(found.modules().at(wide).factor, 3.0 / 5);
  EXPECT_EQ(found.modules().at(other_alpha).rank, 2);
  EXPECT_EQ(found.modules().at(other_alpha).factor, 0.25);
  for (const LoraMatrices& matrices : example().modules) {
    EXPECT_EQ(found.modules().at(matrices.module).rank, 2);
    EXPECT_EQ(found.modules().at(matrices.module).factor, 1.5);
  }
}

TEST(LoraWriter, RefusesOtherShapes) {
  const TempFolder folder;
  LoraToWrite lora = example();
  lora.modules[0].up = numbered({3, 5}, 9);
  test::expect_error(
      Status::internal, [&] { write_lora(folder.path(), lora); },
      "module transformer_blocks.0.attn1.to_q has A [2, 4] and B [3, 5], expected [rank, in]");
}

}  // namespace
}  // namespace reelmesh
