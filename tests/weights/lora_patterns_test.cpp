#include "weights/lora_patterns.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace reelmesh {
namespace {

// As get_pattern_key of PEFT 0.21.
TEST(LoraPatterns, NameModulesAsPeft) {
  const std::string module = "transformer_blocks.11.attn1.to_q";
  EXPECT_TRUE(names_module("to_q", module));
  EXPECT_TRUE(names_module("attn1.to_q", module));
  EXPECT_TRUE(names_module("11.attn1.to_q", module));
  EXPECT_TRUE(names_module(module, module));
  EXPECT_FALSE(names_module("1.attn1.to_q", module));
  EXPECT_FALSE(names_module("o_q", module));
  EXPECT_FALSE(names_module("attn1", module));
  EXPECT_FALSE(names_module("model." + module, module));
  const LoraPatterns<std::int64_t> patterns{
      {"transformer_blocks.0.attn1.to_q", 128}, {"to_q", 8}, {"attn1.to_q", 4}, {"ff.net.2", 2}};
  const auto rank = [&](const char* name) {
    return value_of_module(patterns, name, std::int64_t{64});
  };
  EXPECT_EQ(rank("transformer_blocks.0.attn1.to_q"), 128);
  EXPECT_EQ(rank("transformer_blocks.1.attn1.to_q"), 8);
  EXPECT_EQ(rank("transformer_blocks.1.ff.net.2"), 2);
  EXPECT_EQ(rank("transformer_blocks.1.attn1.to_k"), 64);
  EXPECT_EQ(pattern_text(patterns),
            "transformer_blocks.0.attn1.to_q=128,to_q=8,attn1.to_q=4,ff.net.2=2");
}

}  // namespace
}  // namespace reelmesh
