// UMT5 as transformers' UMT5EncoderModel and diffusers' Wan pipelines use it.
#include <gtest/gtest.h>

#include "models/common/asked.hpp"
#include "models/t5/t5.hpp"
#include "support/data_folder.hpp"
#include "support/random_tensor.hpp"
#include "text/tokenizer.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

using test::relative_error;
using test::rms_error;
using test::same_bits;

class Umt5 : public testing::Test {
 protected:
  const std::filesystem::path folder = test::data_folder() / "umt5";
  const T5Config config = T5Config::read(Config::read(folder / "text_encoder" / "config.json"));
  const Checkpoint weights = Checkpoint::open(folder / "text_encoder", "model");
  const Checkpoint results = Checkpoint::open(folder, "reference");
  const nlohmann::json facts =
      parse_json(read_text(folder / "reference.json", 1 << 20), "reference.json");
  const std::int64_t rows = facts["rows"].get<std::int64_t>();

  Tensor expected(std::size_t prompt) const {
    return results.load(fmt::format("embeddings.{}", prompt), {rows, config.d_model},
                        DType::float32);
  }
  // The ids of a prompt, padded.
  std::vector<std::int32_t> ids(std::size_t prompt) const {
    auto ids = facts["prompts"][prompt]["ids"].get<std::vector<std::int32_t>>();
    ids.resize(static_cast<std::size_t>(rows));
    return ids;
  }
  // As the text stage does.
  Tensor encode(const std::vector<const T5Layers*>& parts,
                const std::vector<std::int32_t>& ids) const {
    const auto tokens = static_cast<std::size_t>(config.encoded_tokens(ids));
    Tensor x = parts.front()->embed(std::span(ids).first(tokens));
    for (const T5Layers* part : parts) x = (*part)(x);
    return with_zero_rows(x, std::ssize(ids)).reshape({std::ssize(ids), config.d_model});
  }
};

TEST_F(Umt5, EqualsTheReference) {
  const T5Layers layers(weights, config, T5Part::whole(config), DType::float32);
  const T5Layers half(weights, config, T5Part::whole(config), DType::bfloat16);
  for (std::size_t i = 0; i < facts["prompts"].size(); ++i) {
    SCOPED_TRACE(facts["prompts"][i]["text"].dump());
    EXPECT_LT(relative_error(encode({&layers}, ids(i)), expected(i)), 1e-5);
    EXPECT_LT(rms_error(encode({&half}, ids(i)).to(DType::float32), expected(i)),
              1.5 * facts["prompts"][i]["bfloat16_rms"].get<double>());
  }
}

TEST_F(Umt5, HasZerosBehindThePrompt) {
  const T5Layers layers(weights, config, T5Part::whole(config), DType::float32);
  const auto kept = facts["prompts"][1]["ids"].size();
  ASSERT_LT(kept, static_cast<std::size_t>(rows));
  const Tensor all = encode({&layers}, ids(1));
  const auto values = all.span<float>();
  const auto at = [&](std::size_t row) {
    return values.subspan(row * static_cast<std::size_t>(config.d_model),
                          static_cast<std::size_t>(config.d_model));
  };
  const auto is_zero = [](float x) { return x == 0; };
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    EXPECT_EQ(std::ranges::all_of(at(row), is_zero), row >= kept) << row;
  }
}

// Each rank of a device map holds some of the layers.
TEST_F(Umt5, InPartsHasTheSameBits) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    const T5Layers whole(weights, config, T5Part::whole(config), dtype);
    const T5Layers front(weights, config, {0, 1, true, false}, dtype);
    const T5Layers middle(weights, config, {1, 2, false, false}, dtype);
    const T5Layers end(weights, config, {2, 3, false, true}, dtype);
    for (std::size_t i = 0; i < facts["prompts"].size(); ++i) {
      EXPECT_TRUE(same_bits(encode({&front, &middle, &end}, ids(i)), encode({&whole}, ids(i))))
          << name_of(dtype) << ": " << facts["prompts"][i]["text"];
    }
  }
}

TEST_F(Umt5, HasATableOfPositionsInEachLayer) {
  const auto tensors = tensors_of<T5Layers>(config, T5Part::whole(config));
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    EXPECT_TRUE(tensors.contains(t5_position_table(config, i))) << i;
  }
  T5Config t5 = config;
  t5.umt5 = false;
  EXPECT_EQ(tensors_of<T5Layers>(t5, T5Part::whole(t5)).size(),
            tensors.size() - static_cast<std::size_t>(config.num_layers) + 1);
}

// Counted with transformers' class: specification of Wan 2.1.
TEST_F(Umt5, HasTheParametersOfTheReleasedModel) {
  const T5Config released{.umt5 = true,
                          .vocab_size = 256384,
                          .d_model = 4096,
                          .d_kv = 64,
                          .d_ff = 10240,
                          .num_layers = 24,
                          .num_heads = 64};
  std::int64_t parameters = 0;
  const auto tensors = tensors_of<T5Layers>(released, T5Part::whole(released));
  for (const auto& [name, shape] : tensors) parameters += numel(shape);
  EXPECT_EQ(parameters, 5'680'910'336);
  EXPECT_EQ(tensors.size(), 242U);
}

TEST_F(Umt5, EncodesTheTokensBeforeThePadding) {
  EXPECT_EQ(config.encoded_tokens(std::vector<std::int32_t>{5, 0, 1, 0, 0}), 3);
  EXPECT_EQ(config.encoded_tokens(std::vector<std::int32_t>{1, 0, 0}), 1);
  EXPECT_EQ(config.encoded_tokens(std::vector<std::int32_t>{5, 6, 1}), 3);
  EXPECT_EQ(T5Config{}.encoded_tokens(std::vector<std::int32_t>{5, 1, 0}), 3);
}

// tokenizer.json has other ids for unknown characters than spiece.model by the slow T5Tokenizer.
TEST_F(Umt5, TokenizerReadsTokenizerJsonBesideSpieceModel) {
  ASSERT_TRUE(std::filesystem::exists(folder / "tokenizer" / "spiece.model"));
  for (const char* name : {"T5TokenizerFast", ""}) {
    const Tokenizer tokenizer = Tokenizer::open(folder / "tokenizer", name);
    for (const auto& prompt : facts["prompts"]) {
      auto expected = prompt["ids"].get<std::vector<std::int32_t>>();
      const Encoded encoded = tokenizer.encode(prompt["cleaned"].get<std::string>(), rows);
      EXPECT_EQ(encoded.kept, std::ssize(expected));
      expected.resize(static_cast<std::size_t>(rows));
      EXPECT_EQ(encoded.ids, expected) << prompt["text"];
    }
  }
}

}  // namespace
}  // namespace reelmesh
