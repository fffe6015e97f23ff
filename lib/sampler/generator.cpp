#include "sampler/generator.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <numeric>
#include <sstream>
#include <utility>

#include "sampler/box_muller.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t chunk = 2048;  // values; fits in the L1 cache

std::uint32_t twisted(std::uint32_t high, std::uint32_t low) {
  const std::uint32_t y = (high & 0x80000000U) | (low & 0x7fffffffU);
  return (y >> 1) ^ ((0U - (low & 1U)) & 0x9908b0dfU);
}

/// Copies the rows of a box from consecutive chunks of the global array, in the order of their
/// global indices.
class BoxWriter {
 public:
  BoxWriter(const Shape& global, const Shape& offset, const Shape& extent, float* out)
      : global_(global), offset_(offset), extent_(extent), index_(extent.size(), 0), out_(out) {
    rows_left_ = 1;
    for (std::size_t axis = 0; axis + 1 < extent.size(); ++axis) rows_left_ *= extent[axis];
    width_ = extent.empty() ? 1 : extent.back();
    if (width_ == 0) rows_left_ = 0;
    find_row();
  }

  void take(std::int64_t begin, std::span<const float> values) {
    const std::int64_t end = begin + static_cast<std::int64_t>(values.size());
    while (rows_left_ > 0 && row_ < end) {
      const std::int64_t from = std::max(begin, row_);
      const std::int64_t to = std::min(end, row_ + width_);
      if (from < to) std::copy_n(values.data() + (from - begin), to - from, out_ + (from - row_));
      if (row_ + width_ > end) return;  // the rest of the row is in the next chunk
      out_ += width_;
      --rows_left_;
      next_row();
    }
  }

 private:
  void find_row() {
    row_ = 0;
    for (std::size_t axis = 0; axis < extent_.size(); ++axis) {
      row_ = row_ * global_[axis] + offset_[axis] + index_[axis];
    }
  }
  void next_row() {
    for (std::size_t axis = extent_.size() - 1; axis-- > 0;) {
      if (++index_[axis] < extent_[axis]) break;
      index_[axis] = 0;
    }
    find_row();
  }

  const Shape& global_;
  const Shape& offset_;
  const Shape& extent_;
  Shape index_;             // of the row within the box; the last entry stays 0
  std::int64_t row_ = 0;    // global index of the row's first element
  std::int64_t width_ = 0;  // elements in a row
  std::int64_t rows_left_ = 0;
  float* out_;
};

}  // namespace

TorchGenerator::TorchGenerator(std::uint64_t seed) {
  state_[0] = static_cast<std::uint32_t>(seed);
  for (std::size_t j = 1; j < state_size; ++j) {
    const std::uint32_t before = state_[j - 1] ^ (state_[j - 1] >> 30);
    state_[j] = 1812433253U * before + static_cast<std::uint32_t>(j);
  }
}

void TorchGenerator::refill() {
  constexpr std::size_t shift = 397;
  std::size_t j = 0;
  for (; j < state_size - shift; ++j) {
    state_[j] = state_[j + shift] ^ twisted(state_[j], state_[j + 1]);
  }
  for (; j < state_size - 1; ++j) {
    state_[j] = state_[j + shift - state_size] ^ twisted(state_[j], state_[j + 1]);
  }
  state_[j] = state_[shift - 1] ^ twisted(state_[j], state_[0]);
  temper();
  used_ = 0;
}

void TorchGenerator::temper() {
  for (std::size_t j = 0; j < state_size; ++j) {
    std::uint32_t y = state_[j];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    words_[j] = y ^ (y >> 18);
  }
}

std::uint32_t TorchGenerator::next() {
  if (used_ == state_size) refill();
  return words_[used_++];
}

void TorchGenerator::uniform(std::span<float> values) {
  while (!values.empty()) {
    if (used_ == state_size) refill();
    const std::size_t n = std::min(values.size(), state_size - used_);
    for (std::size_t i = 0; i < n; ++i) {
      // Signed, because signed integers convert to float faster; 24 bits fit in both.
      const auto low = static_cast<std::int32_t>(words_[used_ + i] & 0xffffffU);
      values[i] = static_cast<float>(low) * 0x1p-24F;
    }
    used_ += n;
    values = values.subspan(n);
  }
}

void TorchGenerator::skip(std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) next();
}

double TorchGenerator::next_uniform_double() {
  const std::uint64_t high = next();
  const std::uint64_t low = next();
  return static_cast<double>(((high << 32) | low) & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
}

float TorchGenerator::next_normal() {
  if (waiting_) {
    const double value = *waiting_;
    waiting_.reset();
    return static_cast<float>(value);
  }
  const double angle = 2.0 * std::numbers::pi * next_uniform_double();
  const double radius = std::sqrt(-2.0 * std::log1p(-next_uniform_double()));
  waiting_ = radius * std::sin(angle);
  return static_cast<float>(radius * std::cos(angle));
}

void TorchGenerator::randn(std::int64_t count, const Consume& consume) {
  expect(count >= 0, "randn of {} values", count);
  if (count == 0) return;
  std::array<float, chunk> buffer;
  const auto hand_on = [&](std::int64_t begin, std::int64_t size) {
    consume(begin, std::span<const float>(buffer).first(static_cast<std::size_t>(size)));
  };
  if (count < box_muller_block) {
    for (std::int64_t i = 0; i < count; ++i) buffer[static_cast<std::size_t>(i)] = next_normal();
    return hand_on(0, count);
  }
  const std::int64_t rest = count % box_muller_block;
  const std::int64_t whole = count - rest;
  const std::int64_t keep =
      rest == 0 ? count : count - box_muller_block;  // later values are drawn again
  for (std::int64_t begin = 0; begin < whole; begin += chunk) {
    const std::int64_t size = std::min(chunk, whole - begin);
    uniform(std::span(buffer).first(static_cast<std::size_t>(size)));
    box_muller(buffer.data(), size);
    hand_on(begin, std::min(size, keep - begin));
  }
  if (rest == 0) return;
  skip(rest);
  uniform(std::span(buffer).first(box_muller_block));
  box_muller(buffer.data(), box_muller_block);
  hand_on(keep, box_muller_block);
}

std::int64_t TorchGenerator::randint(std::int64_t count) {
  expect(count > 0 && count <= max_randint, "randint of {} values", count);
  return std::int64_t{next()} % count;
}

float TorchGenerator::rand() {
  float value = 0;
  uniform({&value, 1});
  return value;
}

std::vector<std::int64_t> TorchGenerator::randperm(std::int64_t count) {
  expect(count >= 0 && count <= max_randint, "randperm of {} values", count);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    const std::int64_t other = i + randint(count - i);
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(other)]);
  }
  return order;
}

std::string TorchGenerator::saved() const {
  std::string text = fmt::format("mt19937 {} {}", used_, waiting_.has_value() ? "1" : "0");
  text += fmt::format(" {:a}", waiting_.value_or(0.0));  // hexadecimal: exact
  for (const std::uint32_t word : state_) text += fmt::format(" {:x}", word);
  return text;
}

TorchGenerator TorchGenerator::restored(const std::string& saved) {
  std::istringstream in(saved);
  std::string kind, waiting;
  bool waits = false;
  TorchGenerator generator(0);
  in >> kind >> generator.used_ >> waits >> waiting >> std::hex;
  for (std::uint32_t& word : generator.state_) in >> word;
  require(in && in.peek() == EOF && kind == "mt19937" && generator.used_ <= state_size,
          Status::data, "the state of a random number generator is damaged");
  if (waits) generator.waiting_ = std::strtod(waiting.c_str(), nullptr);
  generator.temper();
  return generator;
}

void fill_noise(TorchGenerator& generator, const Shape& global, const Shape& offset,
                const Shape& extent, float* out) {
  expect(offset.size() == global.size() && extent.size() == global.size(),
         "noise of shape {}, box at {} with extent {}", to_string(global), to_string(offset),
         to_string(extent));
  for (std::size_t axis = 0; axis < global.size(); ++axis) {
    expect(offset[axis] >= 0 && extent[axis] >= 0 && extent[axis] <= global[axis] - offset[axis],
           "noise of shape {}, box at {} with extent {}", to_string(global), to_string(offset),
           to_string(extent));
  }
  BoxWriter box(global, offset, extent, out);
  generator.randn(numel(global), [&](std::int64_t begin, std::span<const float> values) {
    box.take(begin, values);
  });
}

void fill_noise_by_channel(TorchGenerator& generator, const Shape& global, const Shape& offset,
                           const Shape& extent, std::int64_t copies, float* out) {
  expect(global.size() == 4 && offset.size() == 4 && extent.size() == 4 && copies >= 1,
         "{} copies of noise of shape {}", copies, to_string(global));
  const auto by_channel = [](std::int64_t copy, const Shape& s) {
    return Shape{copy, s[1], s[0], s[2], s[3]};
  };
  std::vector<float> drawn(static_cast<std::size_t>(numel(extent)));
  fill_noise(generator, by_channel(copies, global), by_channel(0, offset), by_channel(1, extent),
             drawn.data());
  const std::int64_t frames = extent[0], channels = extent[1], pixels = extent[2] * extent[3];
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t t = 0; t < frames; ++t) {
      std::copy_n(drawn.data() + (c * frames + t) * pixels, pixels,
                  out + (t * channels + c) * pixels);
    }
  }
}

}  // namespace reelmesh
