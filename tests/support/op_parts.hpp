#pragma once
// Whether the parts of an op's result have the bits of the whole, however it is cut.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "ops/exact_sum.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {

/// A copy of elements [first, first + count) along an axis of a tensor on the host.
inline Tensor slice(const Tensor& x, std::size_t axis, std::int64_t first, std::int64_t count) {
  Shape shape = x.shape();
  std::int64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) (i < axis ? outer : inner) *= shape[i];
  const std::int64_t size = inner / std::max<std::int64_t>(shape[axis], 1);
  shape[axis] = count;
  Tensor out = Tensor::empty(shape, x.dtype());
  for (std::int64_t i = 0; i < outer && count > 0; ++i) {
    out.reshape({outer, count * size})
        .rows(i, 1)
        .reshape({count * size})
        .copy_from(x.reshape({x.numel()}).rows(i * inner + first * size, count * size));
  }
  return out;
}

/// Elements [first, first + count) of the `all` elements that an op is cut along.
struct Share {
  std::int64_t first = 0, count = 0, all = 0;
};

/// Random arguments of a whole, on the host, by their number.
class Arguments {
 public:
  const Tensor& operator()(std::size_t number, const Shape& shape, DType dtype) {
    if (number == made_.size()) {
      made_.push_back(random_tensor(shape, static_cast<unsigned>(number), dtype));
    }
    expect(made_.at(number).shape() == shape, "argument {} has another shape in the whole", number);
    return made_[number];
  }

 private:
  std::vector<Tensor> made_;
};

/// A share and the arguments for it. An op's function asks for the same ones, in the same order,
/// for every part.
class Part : public Share {
 public:
  Part(const Share& share, Device device, DType dtype, Arguments& arguments)
      : Share(share), device_(device), dtype_(dtype), arguments_(arguments) {}

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  /// An argument that is the same for all parts, to be read only.
  Tensor whole(const Shape& shape) { return whole(shape, dtype_); }
  Tensor whole(const Shape& shape, DType dtype) { return random(shape, dtype).on(device_); }
  /// This part's share of an argument. shape: of the whole; the extent along the axis is a multiple
  /// of `all`.
  Tensor cut(const Shape& shape, std::size_t axis = 0) { return cut(shape, axis, dtype_); }
  Tensor cut(const Shape& shape, std::size_t axis, DType dtype) {
    const std::int64_t unit = shape[axis] / all;
    return range(shape, axis, first * unit, count * unit, dtype);
  }
  /// Elements [from, from + number) along the axis. Those of the leading axis are views of the
  /// whole, at addresses that depend on the part, or copies.
  Tensor range(const Shape& shape, std::size_t axis, std::int64_t from, std::int64_t number,
               DType dtype) {
    const Tensor& x = random(shape, dtype);
    if (axis == 0 && first % 2 == 1) {
      return (device_.is_cuda() ? x.on(device_) : x.clone()).rows(from, number);
    }
    return slice(x, axis, from, number).on(device_);
  }
  /// Memory for a result.
  Tensor zeros(const Shape& shape) const { return Tensor::zeros(shape, dtype_, device_); }

 private:
  const Tensor& random(const Shape& shape, DType dtype) {
    return arguments_(next_++, shape, dtype);
  }

  Device device_;
  DType dtype_;
  Arguments& arguments_;
  std::size_t next_ = 0;
};

/// A result of a part.
struct PartResult {
  Tensor values;                         ///< the share of the whole along the axis
  std::size_t axis = 0;                  ///< of values
  std::vector<ops::ExactSum> sums = {};  ///< those of all parts are added
};

/// An op, and what it is cut along.
struct OpCut {
  std::string op;     ///< as declared in lib/ops
  std::string along;  ///< what is cut
  std::int64_t size;  ///< how many of them there are
  /// The results of a part; of one without elements maybe none.
  std::function<std::vector<PartResult>(Part&)> compute;
  bool on_cpu = true, on_gpu = true;  ///< which computes it, and is tested
};

inline void PrintTo(const OpCut& cut, std::ostream* out) { *out << cut.op << ", " << cut.along; }

/// The name of a test with this row of the table: "Linear_many_rows".
inline std::string op_name(const testing::TestParamInfo<OpCut>& info) {
  std::string name = info.param.op + "_" + info.param.along;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

/// Sizes of parts that add up to n: unlike ones, single elements, the whole, an empty part, and
/// sizes around those of the kernels' blocks.
inline std::vector<std::vector<std::int64_t>> cuts(std::int64_t n) {
  std::vector<std::vector<std::int64_t>> all{
      {n}, {1, n - 1}, {n - 1, 1}, {0, n / 5, n / 2, n - n / 5 - n / 2}};
  all.push_back(
      std::vector<std::int64_t>(static_cast<std::size_t>(std::min<std::int64_t>(n, 8)), 1));
  if (n > 8) all.back().push_back(n - 8);
  std::vector<std::int64_t>& blocks = all.emplace_back();
  std::int64_t rest = n;
  for (const std::int64_t block : {15, 16, 17, 31, 33, 63, 65, 127, 1125, 4097}) {
    if (block > rest) break;
    blocks.push_back(block);
    rest -= block;
  }
  if (rest > 0) blocks.push_back(rest);
  return all;
}

/// The parts of each cut, computed by 3 threads, have the bits of the whole, computed by 1.
inline void expect_bits_of_whole(const OpCut& cut, Device device, DType dtype) {
  Arguments arguments;
  const auto compute = [&](std::int64_t first, std::int64_t count, int threads) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    Part part({first, count, cut.size}, device, dtype, arguments);
    std::vector<PartResult> results = cut.compute(part);
    for (PartResult& result : results) result.values = result.values.on({});
    omp_set_num_threads(before);
    return results;
  };
  const std::vector<PartResult> whole = compute(0, cut.size, 1);
  for (const std::vector<std::int64_t>& parts : cuts(cut.size)) {
    SCOPED_TRACE(
        fmt::format("{}, {} in parts of {}", name_of(dtype), cut.along, fmt::join(parts, ", ")));
    std::vector<std::vector<ops::ExactSum>> added(whole.size());
    std::int64_t first = 0;
    for (const std::int64_t count : parts) {
      const std::vector<PartResult> found = compute(first, count, 3);
      if (count == 0 && found.empty()) continue;
      ASSERT_EQ(found.size(), whole.size());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const auto& [values, axis, sums] = whole[i];
        const std::int64_t unit = values.shape(axis) / cut.size;
        EXPECT_TRUE(same_bits(found[i].values, slice(values, axis, first * unit, count * unit)))
            << "result " << i << " from " << first << " on";
        added[i].resize(sums.size());
        for (std::size_t k = 0; k < sums.size(); ++k) added[i][k].add(found[i].sums.at(k));
      }
      first += count;
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (std::size_t k = 0; k < whole[i].sums.size(); ++k) {
        const ops::ExactSum &sum = added[i][k], &expected = whole[i].sums[k];
        EXPECT_EQ(std::tie(sum.high, sum.middle, sum.low, sum.lost),
                  std::tie(expected.high, expected.middle, expected.low, expected.lost));
      }
    }
  }
}

}  // namespace reelmesh::test
