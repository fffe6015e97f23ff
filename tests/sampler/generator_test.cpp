#include "sampler/noise.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/error.hpp"
#include "reference_lines.hpp"
#include "sampler/box_muller.hpp"

namespace reelmesh {
namespace {

std::vector<float> randn(TorchGenerator& generator, std::int64_t count) {
  std::vector<float> values;
  generator.randn(count, [&](std::int64_t begin, std::span<const float> stretch) {
    EXPECT_EQ(begin, static_cast<std::int64_t>(values.size()));
    values.insert(values.end(), stretch.begin(), stretch.end());
  });
  return values;
}

TEST(TorchGenerator, DrawsTheBitsOfTorchRandn) {
  for (const std::string& line : reference_lines("noise.txt")) {
    std::istringstream in(line);
    std::uint64_t seed = 0;
    std::uint64_t hash = 0;
    std::size_t count = 0;
    in >> seed >> count >> std::hex >> hash;
    TorchGenerator generator(seed);
    const std::vector<std::uint32_t> got = bits(randn(generator, static_cast<std::int64_t>(count)));
    ASSERT_EQ(got.size(), count);
    const std::vector<std::uint32_t> first = read_bits(in, 4);
    const std::vector<std::uint32_t> last = read_bits(in, 4);
    EXPECT_EQ(std::vector(got.begin(), got.begin() + 4), first) << line;
    EXPECT_EQ(std::vector(got.end() - 4, got.end()), last) << line;
    Hash all;
    for (const std::uint32_t word : got) all.add(word);
    EXPECT_EQ(all.value, hash) << line;
  }
}

// torch.Generator().manual_seed(1): randn of 37, 3, 20, 2, 5 in turn. The unused value of a small
// call is kept for the next small call, across a large one.
TEST(TorchGenerator, KeepsItsStateBetweenCallsAsTorchDoes) {
  std::istringstream in(reference_lines("sequence.txt").front());
  TorchGenerator generator(1);
  for (const std::int64_t count : {37, 3, 20, 2, 5}) {
    const std::vector<float> values = randn(generator, count);
    EXPECT_EQ(bits(values), read_bits(in, values.size())) << count;
  }
}

TEST(TorchGenerator, DrawsNothingForNoValues) {
  TorchGenerator a(5);
  TorchGenerator b(5);
  EXPECT_TRUE(randn(a, 0).empty());
  EXPECT_EQ(bits(randn(a, 20)), bits(randn(b, 20)));
}

TEST(BoxMuller, HasTheSameBitsWithoutChosenInstructions) {
  std::mt19937 random(1);
  std::vector<float> fast(16 * 1003);
  for (float& x : fast) x = static_cast<float>(random() & 0xffffffU) * 0x1p-24F;
  fast[0] = 0;                       // radius 0
  fast[1] = 1 - 0x1p-24F;            // largest radius
  fast[8] = fast[9] = 1 - 0x1p-24F;  // largest angle
  std::vector<float> portable = fast;
  box_muller(fast.data(), static_cast<std::int64_t>(fast.size()));
  box_muller_portable(portable.data(), static_cast<std::int64_t>(portable.size()));
  EXPECT_EQ(bits(fast), bits(portable));
}

/// A box of a whole array.
std::vector<float> cut(const std::vector<float>& whole, const Shape& global, const Shape& offset,
                       const Shape& extent) {
  std::vector<float> box;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(whole.size()); ++i) {
    std::int64_t rest = i;
    bool inside = true;
    for (std::size_t axis = global.size(); axis-- > 0; rest /= global[axis]) {
      const std::int64_t at = rest % global[axis] - offset[axis];
      inside = inside && at >= 0 && at < extent[axis];
    }
    if (inside) box.push_back(whole[static_cast<std::size_t>(i)]);
  }
  return box;
}

struct BoxCase {
  Shape global, offset, extent;
};

TEST(FillNoise, KeepsTheBoxOfTheWholeArray) {
  const std::vector<BoxCase> cases = {
      {{1, 3, 16, 7, 10}, {0, 0, 0, 0, 0}, {1, 3, 16, 7, 10}},  // whole; a multiple of 16
      {{1, 3, 16, 7, 10}, {0, 0, 0, 2, 0}, {1, 3, 16, 3, 10}},  // rows
      {{1, 3, 16, 7, 10}, {0, 1, 0, 4, 5}, {1, 2, 16, 3, 5}},   // frames, rows and columns
      {{1, 3, 16, 7, 10}, {0, 1, 0, 7, 0}, {1, 2, 16, 0, 10}},  // empty
      {{5, 7, 9}, {1, 2, 3}, {4, 5, 6}},                        // the last 16 are drawn again
      {{5, 7, 9}, {4, 6, 0}, {1, 1, 9}},
      {{3, 4000}, {0, 1999}, {3, 2001}},  // rows longer than a chunk
      {{3, 4}, {1, 1}, {2, 2}},           // fewer than 16
      {{2048, 4}, {0, 3}, {2048, 1}},
      {{40}, {13}, {20}},
  };
  for (const BoxCase& c : cases) {
    TorchGenerator one(9);
    TorchGenerator other(9);
    const std::vector<float> expected =
        cut(randn(one, numel(c.global)), c.global, c.offset, c.extent);
    std::vector<float> box(static_cast<std::size_t>(numel(c.extent)) + 1, 77.0F);
    fill_noise(other, c.global, c.offset, c.extent, box.data());
    EXPECT_EQ(box.back(), 77.0F) << to_string(c.global);
    box.pop_back();
    EXPECT_EQ(box, expected) << to_string(c.global) << " " << to_string(c.offset);
    EXPECT_EQ(randn(one, 20), randn(other, 20)) << "state after the draw";
  }
}

TEST(FillNoise, RefusesABoxOutsideTheArray) {
  TorchGenerator generator(1);
  std::vector<float> box(64);
  EXPECT_THROW(fill_noise(generator, {4, 4}, {0, 2}, {4, 3}, box.data()), Error);
  EXPECT_THROW(fill_noise(generator, {4, 4}, {0, -1}, {4, 3}, box.data()), Error);
  EXPECT_THROW(fill_noise(generator, {4, 4}, {0}, {4}, box.data()), Error);
}

// At any point of the stream, also while an unused value of a pair is kept.
TEST(TorchGenerator, ContinuesFromItsSavedState) {
  TorchGenerator generator(11);
  for (const std::int64_t count : {1, 1, 3, 17, 300, 5, 1000, 16}) {
    TorchGenerator other = TorchGenerator::restored(generator.saved());
    TorchGenerator again = TorchGenerator::restored(other.saved());
    EXPECT_EQ(other.saved(), generator.saved());
    const std::vector<float> expected = randn(generator, count);
    EXPECT_EQ(randn(other, count), expected) << count;
    EXPECT_EQ(randn(again, count), expected) << count;
  }
}

TEST(Noise, FollowsTheRule) {
  const Shape global{3, 2, 4, 5}, offset{1, 0, 1, 0}, extent{2, 2, 2, 5};
  std::vector<float> box(40), expected(40);
  const auto drawn = [&](const NoiseRule& rule, auto draw) {
    TorchGenerator generator(4);
    draw(rule, generator, global, offset, extent, std::span<float>(box));
    return randn(generator, 20);
  };
  TorchGenerator plain(4);
  fill_noise(plain, global, offset, extent, expected.data());
  EXPECT_EQ(drawn({}, draw_initial_noise), randn(plain, 20));
  EXPECT_EQ(box, expected);
  for (float& value : expected) value = static_cast<float>(BFloat16(value));
  drawn({.in_step = DType::bfloat16}, draw_step_noise);
  EXPECT_EQ(box, expected);
  // Open-Sora 1.0: the first of two arrays, channels before frames.
  TorchGenerator by_channel(4);
  fill_noise_by_channel(by_channel, global, offset, extent, 2, expected.data());
  EXPECT_EQ(drawn({.channels_first = true, .arrays_in_step = 2}, draw_step_noise),
            randn(by_channel, 20));
  EXPECT_EQ(box, expected);
  TorchGenerator one_array(4);  // for the initial noise
  fill_noise_by_channel(one_array, global, offset, extent, 1, expected.data());
  EXPECT_EQ(drawn({.channels_first = true, .arrays_in_step = 2}, draw_initial_noise),
            randn(one_array, 20));
  EXPECT_EQ(box, expected);
}

}  // namespace
}  // namespace reelmesh
