// Hand-overs carry a key: one that was begun in another order on one rank is an error, not another
// clip's values.
#include "layout/hand_over.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using Kind = MessageKey::Kind;

// From rank 0 to rank 1 of the world.
HandOver hand_over(const comm::Group& world, const MessageKey& key, float value,
                   std::int64_t elements, DType dtype) {
  const Layout one = Layout::replicated({elements}, 1);
  Tensor x;
  if (world.rank() == 0) {
    x = Tensor::zeros({elements}, DType::float32);
    for (float& element : x.span<float>()) element = value;
    x = x.to(dtype);
  }
  return {world, key, x, {one, one, 0, 1}, dtype};
}

float first_value(const Tensor& x) { return x.to(DType::float32).span<float>()[0]; }

TEST(HandOver, BringsTheValuesOfEachKindInItsOrder) {
  const comm::Group& world = test::world();
  if (world.size() < 2 || world.rank() > 1) GTEST_SKIP() << "of two ranks";
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    std::vector<HandOver> pending;
    // The other rank begins the kinds in another order.
    std::vector<MessageKey> keys{{Kind::latents, 4, 1},
                                 {Kind::latents, 5, 1},
                                 {Kind::embeddings, 4, 1},
                                 {Kind::encoded_input, 9, 3}};
    if (world.rank() == 1) std::ranges::rotate(keys, keys.begin() + 2);
    for (const MessageKey& key : keys) {
      const float value = static_cast<float>(key.clip) + 0.5F * static_cast<float>(key.kind);
      pending.push_back(hand_over(world, key, value, 5, dtype));
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Tensor x = pending[i].finish();
      if (world.rank() == 0) continue;
      EXPECT_EQ(first_value(x),
                static_cast<float>(keys[i].clip) + 0.5F * static_cast<float>(keys[i].kind));
    }
  }
}

// Clips may differ in size; then MPI itself may refuse the message.
TEST(HandOver, SwappedOnOneRankIsAnErrorThatNamesBoth) {
  const comm::Group& world = test::world();
  if (world.size() < 2 || world.rank() > 1) GTEST_SKIP() << "of two ranks";
  struct Sizes {
    std::int64_t four, five;
  };
  for (const auto& [four, five] : {Sizes{7, 7}, Sizes{7, 3}, Sizes{3, 700}}) {
    const MessageKey a{Kind::latents, 4, 1}, b{Kind::latents, 5, 2};
    if (world.rank() == 0) {
      HandOver first = hand_over(world, a, 4, four, DType::float32);
      HandOver second = hand_over(world, b, 5, five, DType::float32);
      first.finish();
      second.finish();
      continue;
    }
    HandOver second = hand_over(world, b, 5, five, DType::float32);
    HandOver first = hand_over(world, a, 4, four, DType::float32);
    try {
      second.finish();
      ADD_FAILURE() << "no error with sizes " << four << " and " << five;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::internal);
      EXPECT_THAT(error.what(),
                  ::testing::HasSubstr("rank 1 expected the latents of clip 5 (batch 2) from rank "
                                       "0, found the latents of clip 4 (batch 1)"));
    }
    EXPECT_THROW(first.finish(), Error);
  }
}

}  // namespace
}  // namespace reelmesh
