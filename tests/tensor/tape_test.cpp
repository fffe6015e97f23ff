#include "tensor/tape.hpp"

#include <gtest/gtest.h>

#include "tensor/ledger.hpp"

namespace reelmesh {
namespace {

// y = factor·x, an op that records itself.
Tensor times(const Tensor& x, float factor) {
  Tensor y = Tensor::empty(x.shape(), DType::float32, x.device());
  for (std::int64_t i = 0; i < x.numel() && !x.device().only_shapes; ++i) {
    y.data<float>()[i] = factor * x.data<float>()[i];
  }
  if (Tape* tape = Tape::of(x)) {
    tape->record(y, [tape, x = TapeValue(x), factor](const Tensor& d) {
      Tensor& sum = tape->sum(x);
      for (std::int64_t i = 0; i < d.numel() && !d.device().only_shapes; ++i) {
        sum.data<float>()[i] += factor * d.data<float>()[i];
      }
    });
  }
  return y;
}

Tensor ones() { return Tensor::of<float>({1, 1}, {2}); }

// A value whose gradient is kept.
Tensor leaf(Tape& tape, Tensor& gradient) {
  Tensor x = Tensor::of<float>({2, 3}, {2});
  tape.record(x, [&gradient](Tensor d) { gradient = std::move(d); });
  return x;
}

TEST(Tape, AddsTheGradientsOfAllUses) {
  Tape tape({});
  Tensor gradient;
  const Tensor x = leaf(tape, gradient);
  Tensor y;
  {
    const Tape::Scope scope(&tape);
    y = times(x, 2);
    times(x, 5);  // not used
    y = times(y.reshape({1, 2}), 7);
  }
  EXPECT_EQ(Tape::recording(), nullptr);
  tape.backward(y, ones());
  EXPECT_EQ(gradient.data<float>()[0], 14);
}

TEST(Tape, RecordsOnlyWhatNeedsGradients) {
  Tape tape({});
  Tensor gradient;
  const Tensor x = leaf(tape, gradient), constant = Tensor::of<float>({1, 1}, {2});
  EXPECT_FALSE(Tape::needs(times(x, 2))) << "outside a scope";
  const Tape::Scope scope(&tape);
  EXPECT_FALSE(Tape::needs(times(constant, 2)));
  EXPECT_TRUE(Tape::needs(times(x, 2)));
  EXPECT_TRUE(Tape::needs(x.clone()));
  EXPECT_FALSE(Tape::needs(x.rows(0, 1)));
  const Tape::Scope paused(nullptr);
  EXPECT_FALSE(Tape::needs(times(x, 2)));
}

TEST(Tape, GivesGradientsOfParametersAway) {
  std::vector<std::size_t> taken;
  Tape tape([&](std::size_t parameter, const Tensor&) { taken.push_back(parameter); });
  Tensor weight = Tensor::of<float>({1, 1}, {2});
  Tape::make_parameter(weight, 3);
  const Tape::Scope scope(&tape);
  Tensor y = Tensor::of<float>({1, 1}, {2});
  tape.record(y, [&, weight](Tensor d) { tape.set(weight, std::move(d)); });
  tape.backward(y, ones());
  EXPECT_EQ(taken, std::vector<std::size_t>{3});
}

TEST(Tape, CopiesWhatARecordHolds) {
  Tensor x = Tensor::of<float>({1, 2}, {2});
  const void* before = x.raw();
  Tape::own(x);
  EXPECT_EQ(x.raw(), before);
  const Tensor held = x;
  Tape::own(x);
  EXPECT_NE(x.raw(), before);
  EXPECT_EQ(x.data<float>()[1], 2);
}

// A block is computed when it is called, and again for its gradients, which reach what it captures.
TEST(Tape, ComputesBlocksAgain) {
  Tape tape({});
  Tensor gradient, of_captured;
  int calls = 0, recorded = 0;
  Tensor y;
  {
    const Tensor x = leaf(tape, gradient), captured = leaf(tape, of_captured);
    const Tape::Scope scope(&tape);
    const auto block = [&calls, &recorded, captured](const Tensor& in) {
      ++calls;
      Tape* recording = Tape::recording();
      recorded += recording != nullptr && recording->computes_again() ? 1 : 0;
      const Tensor out = times(in, 2), other = times(captured, 3);
      Tensor sum = out.clone();
      if (recording != nullptr) {
        recording->record(sum, [recording, out, other](const Tensor& d) {
          recording->set(out, d);
          recording->set(other, d);
        });
      }
      return sum;
    };
    y = checkpoint(1, checkpoint(0, x, block), block);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(recorded, 0);
  }
  tape.backward(y, ones());
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(recorded, 2);
  EXPECT_EQ(gradient.data<float>()[0], 4);
  EXPECT_EQ(of_captured.data<float>()[0], 3 + 2 * 3);
}

// On shapes memory is counted: of a block only its input stays.
TEST(Tape, WorksOnShapes) {
  Ledger ledger({});
  const DryRun run(ledger);
  Tape tape({});
  constexpr std::int64_t n = 1 << 20;
  const auto block = [](const Tensor& x) { return times(times(times(x, 2), 2), 2); };
  Tensor y;
  {
    Tensor x = Tensor::empty({n}, DType::float32, Device::shapes());
    tape.record(x, [](const Tensor&) {});
    const Tape::Scope scope(&tape);
    y = checkpoint(0, checkpoint(1, std::move(x), block), block);
  }
  EXPECT_EQ(ledger.present() / n, 3 * 4);
  tape.backward(y, Tensor::empty({n}, DType::float32, Device::shapes()));
  y = {};
  EXPECT_EQ(ledger.present(), 0);
}

}  // namespace
}  // namespace reelmesh
