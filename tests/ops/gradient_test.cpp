// Gradients that ops record on a tape, beside finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/norm_backward.hpp"
#include "ops/pointwise.hpp"
#include "ops/rows.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh {
namespace {

// One rank has all rows; the first ones are a segment of their own.
class AllRows final : public TokenRows {
 public:
  explicit AllRows(std::int64_t first) : first_(first) {}
  Range own_columns(std::int64_t columns) const override { return {0, columns}; }
  Tensor to_columns(const Tensor& x) const override { return x; }
  Tensor gather(const Tensor& x) const override { return x; }
  Tensor whole(const Tensor& own, std::int64_t) const override { return own; }
  std::int64_t first_rows() const override { return first_; }

 private:
  std::int64_t first_;
};

using Inputs = std::vector<Tensor>;
// The first inputs are values, whose gradients may be added up; the others parameters.
struct Function {
  Inputs inputs;
  std::size_t values;
  std::function<Tensor(Inputs inputs)> of;
};

// Of the sum of all results, each with a weight.
void expect_gradients(const Function& f) {
  const AllRows rows(2);
  Inputs gradients(f.inputs.size());
  Tape tape([&](std::size_t parameter, const Tensor& d) { gradients[parameter] = d; });
  Inputs inputs;
  for (std::size_t i = 0; i < f.inputs.size(); ++i) {
    inputs.push_back(f.inputs[i].clone());
    if (i < f.values) {
      tape.record(inputs[i], [&gradients, i](Tensor d) { gradients[i] = std::move(d); });
    } else {
      Tape::make_parameter(inputs[i], i);
    }
  }
  Tensor out;
  {
    const Tape::Scope scope(&tape);
    const Tape::Rows of_tensors(rows);
    out = f.of(std::move(inputs));
  }
  const Tensor weights = test::random_tensor(out.shape(), 77);
  tape.backward(out, weights.clone());
  const auto sum = [&](const Inputs& at) {
    Inputs copies;
    for (const Tensor& x : at) copies.push_back(x.clone());
    const Tensor y = f.of(std::move(copies));
    double total = 0;
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      total += double{y.data<float>()[i]} * double{weights.data<float>()[i]};
    }
    return total;
  };
  for (std::size_t i = 0; i < f.inputs.size(); ++i) {
    ASSERT_EQ(gradients[i].numel(), f.inputs[i].numel()) << "input " << i;
    for (std::int64_t e = 0; e < f.inputs[i].numel(); ++e) {
      constexpr float step = 1e-2F;
      const auto moved = [&](float by) {
        Inputs at = f.inputs;
        at[i] = at[i].clone();
        at[i].data<float>()[e] += by;
        return sum(at);
      };
      const double expected = (moved(step) - moved(-step)) / (2 * double{step});
      EXPECT_NEAR(std::as_const(gradients[i]).data<float>()[e], expected,
                  2e-2 * std::max(0.1, std::abs(expected)))
          << "input " << i << ", element " << e;
    }
  }
}

Tensor random(const Shape& shape, unsigned seed) { return test::random_tensor(shape, seed); }

TEST(Gradients, OfSumsAndActivations) {
  expect_gradients({{random({3, 4}, 1), random({3, 4}, 2)}, 2, [](Inputs in) {
                      ops::add(in[0], in[1]);
                      ops::add(in[0], in[1]);
                      return in[0];
                    }});
  expect_gradients({{random({1, 7}, 3)}, 1, [](Inputs in) { return ops::silu(in[0]); }});
  expect_gradients({{random({3, 4}, 4)}, 1, [](Inputs in) { return ops::gelu_tanh(in[0]); }});
  expect_gradients({{random({3, 4}, 5)}, 1, [](Inputs in) { return ops::gelu(in[0]); }});
}

TEST(Gradients, OfRows) {
  expect_gradients({{random({3, 1, 4}, 1), random({2, 1, 4}, 2)}, 2, [](Inputs in) {
                      Tensor all = ops::join_rows(in);
                      ops::add_table(all, random({5, 4}, 3));
                      Tensor part = ops::row_range(all, 1, 3);
                      ops::add(part, ops::row_range(all, 2, 3));
                      return part;
                    }});
}

TEST(Gradients, OfPatches) {
  const ops::Patch patch{1, 2, 2};
  expect_gradients({{random({6, 8}, 1)}, 1, [&](Inputs in) {
                      Tensor tokens = Tensor::empty({6, 1, 8}, DType::float32);
                      ops::repeat_for_batch(in[0], tokens);
                      return ops::unpatchify(tokens, 0, patch, {1, 2, 4, 6});
                    }});
}

constexpr std::int64_t channels = 6;
const ops::FirstTokens first{2, 3};

TEST(Gradients, OfLayerNorms) {
  const Tensor x = random({5, 1, channels}, 1), weight = random({channels}, 2);
  const Tensor bias = random({channels}, 3), table = random({1, 6 * channels}, 4);
  expect_gradients({{x, weight, bias}, 1, [](Inputs in) {
                      return ops::layer_norm(in[0], in[1], in[2], 1e-3F);
                    }});
  expect_gradients(
      {{x, table, weight, bias}, 2, [](Inputs in) {
         Tensor out = Tensor::empty(in[0].shape(), DType::float32);
         ops::modulated_layer_norm(in[0], in[2], in[3], 1e-3F, {in[1], 0, 2, first}, out);
         return out;
       }});
}

TEST(Gradients, OfGates) {
  const Tensor x = random({5, 1, channels}, 1), y = random({5, 1, channels}, 2);
  const Tensor table = random({1, 6 * channels}, 3), next = random({1, 6 * channels}, 4);
  const Tensor weight = random({channels}, 5), bias = random({channels}, 6);
  expect_gradients({{x, y, table}, 3, [](Inputs in) {
                      ops::add_gated(in[0], in[1], ops::shared_by_tokens(in[2]), 1, first);
                      return in[0];
                    }});
  expect_gradients({{x, y, table, next, weight, bias}, 4, [](Inputs in) {
                      Tensor out = Tensor::empty(in[0].shape(), DType::float32);
                      ops::add_gated_and_norm(in[0], in[1], {in[2], 1, first}, in[4], in[5], 1e-3F,
                                              {in[3], 0, 2, first}, out);
                      ops::add(out, in[0]);
                      return out;
                    }});
}

TEST(Gradients, OfNormsOfHeads) {
  const std::int64_t head = 4;
  const Tensor cosines = random({3, head}, 7), sines = random({3, head}, 8);
  for (const std::int64_t parts : {1, 2}) {
    for (const bool centred : {true, false}) {
      Inputs inputs{random({5, 1, parts, 3, head}, 1), random({head}, 2)};
      if (centred) inputs.push_back(random({head}, 3));
      expect_gradients({inputs, 1, [&](Inputs in) {
                          ops::normalise_and_rotate(
                              in[0], {in[1], centred ? in[2] : Tensor(), 1e-3F}, cosines, sines, 2);
                          return in[0];
                        }});
    }
  }
}

TEST(Gradients, OfNormsOfAllHeadsTogether) {
  const std::int64_t head = 4;
  const Tensor cosines = random({5, head}, 7), sines = random({5, head}, 8);
  for (const std::int64_t parts : {1, 2}) {
    for (const bool rotates : {true, false}) {
      expect_gradients(
          {{random({5, 1, parts, 3, head}, 1), random({3 * head}, 2)}, 1, [&](Inputs in) {
             ops::norm_together_and_rotate(in[0], in[1], 1e-3F, rotates ? cosines : Tensor(),
                                           rotates ? sines : Tensor());
             return in[0];
           }});
    }
  }
}

// Both ways: in between there is a value of fewer digits, whose gradient is float32.
TEST(Gradients, OfConversions) {
  Tape tape([](std::size_t, const Tensor&) {});
  Tensor x = random({1, 7}, 1), found;
  tape.record(x, [&](Tensor d) { found = std::move(d); });
  Tensor out;
  {
    const Tape::Scope scope(&tape);
    const Tensor narrow = ops::converted(x, DType::bfloat16);
    EXPECT_EQ(narrow.dtype(), DType::bfloat16);
    out = ops::converted(narrow, DType::float32);
    EXPECT_TRUE(test::same_bits(out, x.to(DType::bfloat16).to(DType::float32)));
    EXPECT_EQ(ops::converted(x, DType::float32).raw(), x.raw());
  }
  const Tensor d = random({1, 7}, 2);
  tape.backward(out, d.clone());
  EXPECT_TRUE(test::same_bits(found, d));
}

}  // namespace
}  // namespace reelmesh
