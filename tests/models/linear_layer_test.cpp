// Gradients of layers whose input is the same value.
#include "models/common/linear_layer.hpp"

#include <gtest/gtest.h>

#include <map>

#include "ops/pointwise.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t rows = 5, in = 4, out = 6;

// One rank has all rows; counts how often they are gathered.
class CountedRows final : public TokenRows {
 public:
  Range own_columns(std::int64_t columns) const override { return {0, columns}; }
  Tensor to_columns(const Tensor& x) const override { return x; }
  Tensor gather(const Tensor& x) const override {
    ++gathered;
    return x;
  }
  Tensor whole(const Tensor& own, std::int64_t) const override { return own; }
  std::int64_t first_rows() const override { return 0; }

  mutable int gathered = 0;
};

// Parameters number `first` and the next one.
LinearLayer layer(std::size_t first) {
  const auto seed = static_cast<unsigned>(first);
  const Tensor weight = test::random_tensor({out, in}, seed);
  Tensor transposed = Tensor::empty({in, out}, DType::float32);
  for (std::int64_t i = 0; i < weight.numel(); ++i) {
    transposed.data<float>()[i % in * out + i / in] = weight.data<float>()[i];
  }
  const auto trained = std::make_shared<TrainedLinear>();
  trained->by_rows = true;
  trained->parameters = {{first, first + 1}};
  trained->backward = {ops::Linear(transposed)};
  return LinearLayer({ops::Linear(weight, test::random_tensor({out}, seed + 1))}, trained);
}

struct Gradients {
  std::map<std::size_t, Tensor> parameters;
  Tensor x;
  int gathered = 0;
};

// Of the sum of what three layers make of a value, or each of a value of its own that equals it.
Gradients gradients(bool is_same) {
  const LinearLayer layers[]{layer(0), layer(2), layer(4)};
  const CountedRows counted;
  Gradients found;
  Tape tape([&](std::size_t parameter, const Tensor& d) { found.parameters[parameter] = d; });
  Tensor x = test::random_tensor({rows, 1, in}, 9), sum;
  tape.record(x, [&](Tensor d) { found.x = std::move(d); });
  {
    const Tape::Scope scope(&tape);
    const Tape::Rows of_tensors(counted);
    for (const LinearLayer& one : layers) {
      Tensor input = x;
      if (!is_same) {
        input = x.clone();
        tape.record(input, [&tape, x = TapeValue(x)](Tensor d) {
          if (Tensor* all = tape.gradient(x)) return ops::add(*all, d);
          tape.set(x, std::move(d));
        });
      }
      Tensor y = one(input);
      if (sum.empty()) {
        sum = y;
      } else {
        ops::add(sum, y);
      }
    }
  }
  tape.backward(sum, test::random_tensor({rows, 1, out}, 10));
  found.gathered = counted.gathered;
  return found;
}

TEST(LinearLayers, GatherAnInputOnceForAllThatReadIt) {
  const Gradients together = gradients(true), alone = gradients(false);
  EXPECT_EQ(together.gathered, 1);
  EXPECT_EQ(alone.gathered, 3);
  ASSERT_EQ(together.parameters.size(), 6U);
  for (const auto& [parameter, d] : together.parameters) {
    EXPECT_TRUE(test::same_bits(d, alone.parameters.at(parameter))) << parameter;
  }
  EXPECT_TRUE(test::same_bits(together.x, alone.x));
}

}  // namespace
}  // namespace reelmesh
