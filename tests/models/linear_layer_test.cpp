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

// Of a sum of two layers of one product, each with a LoRA, computed as written.
TEST(LinearLayers, DropInputsOfEachLora) {
  constexpr std::int64_t half = out / 2;
  const std::vector<LoraTarget> targets{{"block.key", in, half, 2, 1},
                                        {"block.value", in, half, 3, 6}};
  const auto dropout = std::make_shared<LoraDropout>(LoraDropout{.probability = 0.4, .seed = 5});
  const auto trained = std::make_shared<TrainedLinear>();
  trained->adapter = std::make_unique<Adapter>(std::vector<int>{0, 1}, targets, in, half,
                                               DType::float32, Device{}, Numerics{}, dropout);
  std::vector<LoraValues> values;
  for (const LoraTarget& target : targets) {
    const auto seed = static_cast<unsigned>(target.rank);
    values.push_back({test::random_tensor({target.rank, in}, seed),
                      test::random_tensor({target.rank, half}, seed + 10)});
  }
  trained->adapter->set(values);
  trained->backward = {ops::Linear(Tensor::zeros({in, out}, DType::float32))};
  const LinearLayer layer({ops::Linear(Tensor::zeros({out, in}, DType::float32))}, trained);
  const Tensor x = test::random_tensor({rows, 1, in}, 9),
               d = test::random_tensor({rows, 1, out}, 10);
  const CountedRows counted;
  for (const std::optional<std::int64_t> sample : {std::optional<std::int64_t>(), {0}, {3}}) {
    dropout->sample = sample;
    std::vector<double> y(rows * out), dx(rows * in);
    std::vector<std::vector<double>> expected;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      const LoraTarget& target = targets[t];
      const std::uint64_t key = ops::random_key(target.module + ".dropout",
                                                5 + static_cast<std::uint64_t>(sample.value_or(0)));
      const auto kept = [&](std::int64_t r, std::int64_t i) {
        const auto place = static_cast<std::uint64_t>(r * in + i);
        const double part = static_cast<double>(ops::random_bits(key, place) >> 32) * 0x1p-32;
        return !sample ? 1.0 : part < 0.4 ? 0.0 : 1 / 0.6;
      };
      std::vector<double> down(std::size_t(target.rank * in)), up(std::size_t(target.rank * half));
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t k = 0; k < target.rank; ++k) {
          double hidden = 0, d_hidden = 0;
          for (std::int64_t i = 0; i < in; ++i) {
            hidden += kept(r, i) * double{x.data<float>()[r * in + i]} *
                      double{values[t].down.data<float>()[k * in + i]};
          }
          for (std::int64_t o = 0; o < half; ++o) {
            const auto at = std::size_t(r * out + std::int64_t(t) * half + o);
            const double b = target.factor() * double{values[t].up.data<float>()[k * half + o]};
            y[at] += b * hidden;
            d_hidden += b * double{d.data<float>()[at]};
            up[std::size_t(k * half + o)] += target.factor() * hidden * double{d.data<float>()[at]};
          }
          for (std::int64_t i = 0; i < in; ++i) {
            const double factor = kept(r, i) * d_hidden;
            down[std::size_t(k * in + i)] += factor * double{x.data<float>()[r * in + i]};
            dx[std::size_t(r * in + i)] +=
                factor * double{values[t].down.data<float>()[k * in + i]};
          }
        }
      }
      expected.push_back(down);
      expected.push_back(up);
    }
    expected.push_back(y);
    expected.push_back(dx);

    std::vector<Tensor> found(6);
    Tape tape([&](std::size_t parameter, const Tensor& gradient) { found[parameter] = gradient; });
    Tensor input = x;
    tape.record(input, [&](Tensor gradient) { found[5] = std::move(gradient); });
    counted.gathered = 0;
    const Tape::Rows of_tensors(counted);
    {
      const Tape::Scope scope(&tape);
      found[4] = layer(input);
    }
    tape.backward(found[4], d.clone());
    EXPECT_EQ(counted.gathered, 2);  // both layers' hidden values and their gradients
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].numel(), std::ssize(expected[i])) << i;
      for (std::size_t e = 0; e < expected[i].size(); ++e) {
        EXPECT_NEAR(std::as_const(found[i]).data<float>()[e], expected[i][e], 1e-5) << i;
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh
