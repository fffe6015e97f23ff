// Layers whose weights pass through a WeightStream compute the same bits as layers that keep them.
#include "layout/weight_stream.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <string>

#include "ops/onednn.hpp"
#include "support/random_tensor.hpp"
#include "support/ranks.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

using test::random_tensor;
using test::same_bits;

const std::vector<Shape> shapes{{40, 24}, {600, 40}, {90, 600}, {3, 90}, {900, 3}, {40, 900}};

// A weight in memory that counts the rows that are read.
struct CountedWeight {
  Tensor values;
  std::shared_ptr<std::vector<int>> reads;
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();

  CountedWeight(const Shape& shape, unsigned seed, DType dtype)
      : values(random_tensor(shape, seed, dtype)),
        reads(std::make_shared<std::vector<int>>(static_cast<std::size_t>(shape[0]))) {}

  ops::WeightRows rows(Device device = {}) const {
    const auto read = [own = *this](std::int64_t first, std::int64_t count, void* into,
                                    std::int64_t stride) {
      const std::int64_t in = own.values.shape(1), size = size_of(own.values.dtype());
      const std::scoped_lock lock(*own.mutex);
      for (std::int64_t r = 0; r < count; ++r) {
        ++own.reads->at(static_cast<std::size_t>(first + r));
        std::memcpy(static_cast<std::byte*>(into) + r * stride * size,
                    own.values.rows(first + r, 1).raw(), static_cast<std::size_t>(in * size));
      }
    };
    return {values.shape(1), values.shape(0), values.dtype(), read, device, {}};
  }
  std::int64_t rows_read() const {
    std::int64_t sum = 0;
    for (const int n : *reads) sum += n;
    return sum;
  }
};

struct Chain {
  std::vector<CountedWeight> weights;
  std::vector<Tensor> biases;
  std::vector<ops::Linear> layers;

  // The same weights on every rank.
  Chain(DType dtype, const std::function<ops::Linear(const CountedWeight&, const Tensor&)>& make,
        unsigned seed = 0) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const unsigned own = seed + static_cast<unsigned>(i);
      weights.emplace_back(shapes[i], own, dtype);
      biases.push_back(i % 2 == 0 ? random_tensor({shapes[i][0]}, 100 + own) : Tensor());
      layers.push_back(make(weights.back(), biases.back()));
    }
  }
  Tensor operator()(Tensor x) const {
    for (const ops::Linear& layer : layers) x = layer(x, ops::Activation::silu);
    return x;
  }
};

Chain plain(DType dtype, unsigned seed = 0) {
  return {dtype,
          [](const CountedWeight& weight, const Tensor& bias) {
            const PurposeScope purpose(Purpose::weights);
            return ops::Linear(weight.values, bias);
          },
          seed};
}

Chain streamed(DType dtype, WeightStream& stream) {
  return {dtype, [&](const CountedWeight& weight, const Tensor& bias) {
            const PurposeScope purpose(Purpose::weights);
            return stream.add(weight.rows(), bias);
          }};
}

std::int64_t rows_read(const Chain& chain) {
  std::int64_t sum = 0;
  for (const CountedWeight& weight : chain.weights) sum += weight.rows_read();
  return sum;
}

struct Case {
  const char* name;
  Residence residence;
  std::vector<double> shares;  // of the first ranks; the others have 1. Empty: equal
  bool unlike_processors = false;
  double resident = 0;

  WeightPlacement placement() const {
    WeightPlacement placement{residence, test::world(), {}, unlike_processors, resident};
    if (!shares.empty()) {
      placement.shares = shares;
      placement.shares.resize(static_cast<std::size_t>(test::world().size()), 1);
    }
    return placement;
  }
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
const std::vector<Case> cases{{"replicated", Residence::replicated, {}},
                              {"sharded", Residence::sharded, {}},
                              {"unevenly", Residence::sharded, {0.2, 5}},
                              {"first_rank_without_a_share", Residence::sharded, {0, 1, 2}},
                              {"unlike_processors", Residence::sharded, {}, true},
                              {"partly_sharded", Residence::sharded, {}, false, 0.4},
                              {"host", Residence::host, {}},
                              {"partly_on_host", Residence::host, {}, false, 0.7}};

class Streams : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const double first = GetParam().shares.empty() ? 1 : GetParam().shares.front();
    if (first == 0 && test::world().size() == 1) GTEST_SKIP() << "one rank must hold everything";
  }
};
INSTANTIATE_TEST_SUITE_P(Cases, Streams, ::testing::ValuesIn(cases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(Streams, GiveTheSameBits) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Chain expected = plain(dtype);
    WeightStream stream(GetParam().placement());
    const Chain chain = streamed(dtype, stream);
    for (unsigned pass = 0; pass < 3; ++pass) {
      const Tensor x = random_tensor({pass == 1 ? 0 : 70 + pass, 24}, pass, dtype);
      EXPECT_TRUE(same_bits(chain(x), expected(x))) << "pass " << pass;
    }
  }
}

TEST_P(Streams, RanksReadAndKeepOnlyTheirShare) {
  const Case& c = GetParam();
  WeightStream stream(c.placement());
  const auto weights = [] {
    return memory_by_purpose(false).present[static_cast<std::size_t>(Purpose::weights)];
  };
  const std::int64_t at_first = weights();
  const Chain chain = streamed(DType::float32, stream);
  const std::int64_t kept = weights() - at_first;
  const Chain whole = plain(DType::float32);
  const std::int64_t all_kept = weights() - at_first - kept;
  const comm::Group& world = test::world();
  for (const CountedWeight& weight : chain.weights) {
    const auto rows = weight.values.shape(0);
    const std::int64_t all = weight.rows_read();
    std::vector<std::int64_t> sums{all};
    world.sum(sums);
    if (c.residence == Residence::replicated) {
      EXPECT_EQ(all, rows);
    }
    if (c.residence == Residence::sharded && c.resident == 0) {
      EXPECT_EQ(sums[0], rows) << "each row is read once, by one rank";
    }
    if (c.residence == Residence::host && c.resident == 0) {
      EXPECT_EQ(all, 0);
    }
  }
  const bool equal = c.shares.empty() && c.resident == 0 && !c.unlike_processors;
  if (c.residence == Residence::sharded && equal) {
    std::int64_t largest_unit = 0;
    for (const Shape& shape : shapes) {
      const ops::LinearForm form(shape[1], shape[0], DType::float32, {});
      for (std::int64_t unit = 0; unit < form.units(); ++unit) {
        largest_unit = std::max(largest_unit, 4 * (form.offset(unit + 1) - form.offset(unit)));
      }
    }
    EXPECT_NEAR(double(kept), double(all_kept) / world.size(), double(largest_unit));
  }
}

// Weights whose numbers a checkpoint has in 8 bits, and the same values in memory.
struct Float8Weight {
  Tensor bytes, factors, values;
  std::shared_ptr<std::atomic<int>> rows_read = std::make_shared<std::atomic<int>>();

  Float8Weight(const Shape& shape, unsigned seed, DType dtype)
      : bytes(Tensor::empty(shape, DType::uint8)), factors(random_tensor({shape[0]}, seed)) {
    std::mt19937 random(seed);
    for (std::uint8_t& byte : bytes.span<std::uint8_t>()) {
      do {
        byte = static_cast<std::uint8_t>(random() % 256);
      } while ((byte & 127U) == 127U);  // NaN
    }
    const Float8Values& of = table();
    Tensor numbers = Tensor::empty({std::ssize(of)}, DType::float32);
    std::ranges::copy(of, numbers.data<float>());
    values = expand_float8(bytes, numbers, factors, dtype);
  }
  static const Float8Values& table() { return *float8_values("F8_E4M3"); }

  ops::WeightRows rows() const {
    const auto read = [own = *this](std::int64_t first, std::int64_t count, std::byte* into) {
      *own.rows_read += static_cast<int>(count);
      std::memcpy(into, own.bytes.rows(first, count).raw(),
                  static_cast<std::size_t>(count * own.bytes.shape(1)));
    };
    const std::span<const float> each = factors.span<float>();
    const Float8Rows stored{&table(), {each.begin(), each.end()}, read};
    const auto wide = [own = values](std::int64_t first, std::int64_t count, void* into,
                                     std::int64_t stride) {
      const std::int64_t in = own.shape(1), size = size_of(own.dtype());
      for (std::int64_t r = 0; r < count; ++r) {
        std::memcpy(static_cast<std::byte*>(into) + r * stride * size, own.rows(first + r, 1).raw(),
                    static_cast<std::size_t>(in * size));
      }
    };
    return {bytes.shape(1),
            bytes.shape(0),
            values.dtype(),
            wide,
            {},
            {},
            std::make_shared<const Float8Rows>(stored)};
  }
};

TEST_P(Streams, KeepNumbersOf8BitsAsTheyAre) {
  const Case& c = GetParam();
  const auto weights = [] {
    return memory_by_purpose(false).present[static_cast<std::size_t>(Purpose::weights)];
  };
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    WeightStream stream(c.placement());
    std::vector<ops::Linear> layers, expected;
    std::int64_t numbers = 0, rows = 0;
    std::vector<std::int64_t> read{0};
    const std::int64_t before = weights();
    for (unsigned i = 0; i < shapes.size(); ++i) {
      const Float8Weight weight(shapes[i], i, dtype);
      const PurposeScope purpose(Purpose::weights);
      layers.push_back(stream.add(weight.rows(), {}));
      numbers += numel(shapes[i]);
      rows += shapes[i][0];
      read[0] += *weight.rows_read;
    }
    std::vector<std::int64_t> kept{weights() - before};
    test::world().sum(kept);
    test::world().sum(read);
    if (c.residence == Residence::sharded && c.resident == 0) {
      EXPECT_EQ(kept[0], numbers) << "one byte each, on one rank";
      EXPECT_EQ(read[0], rows);
    } else if (c.residence != Residence::sharded) {
      EXPECT_EQ(read[0], 0) << "processors pack them, or read them at each use";
    }
    for (unsigned i = 0; i < shapes.size(); ++i) {
      expected.emplace_back(Float8Weight(shapes[i], i, dtype).values);
    }
    for (unsigned pass = 0; pass < 3; ++pass) {
      const Tensor x = random_tensor({pass == 1 ? 0 : 70 + pass, 24}, pass, dtype);
      Tensor y = x, z = x;
      for (const ops::Linear& layer : layers) y = layer(y, ops::Activation::silu);
      for (const ops::Linear& layer : expected) z = layer(z, ops::Activation::silu);
      EXPECT_TRUE(same_bits(y, z)) << "pass " << pass;
    }
    if (c.residence == Residence::sharded) {
      EXPECT_THROW(layers[0].set_together(Float8Weight(shapes[0], 0, dtype).rows()), Error)
          << "other values are not of 8 bits";
    }
  }
}

// After an exception between layers the next pass begins anew, with the same bits.
TEST_P(Streams, StartAgainAfterAPassThatEndedEarly) {
  const Chain expected = plain(DType::float32);
  WeightStream stream(GetParam().placement());
  const Chain chain = streamed(DType::float32, stream);
  const Tensor x = random_tensor({9, 24}, 1);
  for (const std::size_t used : {std::size_t{1}, std::size_t{3}, shapes.size() - 1}) {
    Tensor y = x;
    for (std::size_t i = 0; i < used; ++i) y = chain.layers[i](y);
    EXPECT_TRUE(same_bits(chain(x), expected(x))) << used;
  }
}

// Layers that a pass uses several times, as the blocks of a model whose backward pass computes them
// again: after the layers of `chain`, in the order of this list.
const std::vector<std::size_t> used_again{1, 2, 3, 4, 1, 2, 2};

std::vector<ops::Linear> with_layers_again(
    const Chain& chain, const std::function<ops::Linear(const ops::Linear&)>& again) {
  std::vector<ops::Linear> all = chain.layers;
  // A use is made from the latest one of the same layer.
  std::map<std::size_t, ops::Linear> latest;
  for (const std::size_t layer : used_again) {
    const auto found = latest.find(layer);
    all.push_back(again(found == latest.end() ? chain.layers[layer] : found->second));
    latest.insert_or_assign(layer, all.back());
  }
  return all;
}

// The results of the first `count` layers. A layer takes the result of the one before it if that
// has as many columns as it has inputs, otherwise random values.
std::vector<Tensor> results_of(const std::vector<ops::Linear>& layers, std::size_t count,
                               unsigned seed, std::int64_t rows) {
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t in = layers[i].in_features();
    const bool follows = i > 0 && results.back().shape(1) == in;
    const Tensor x = follows ? results.back() : random_tensor({rows, in}, seed);
    results.push_back(layers[i](x, ops::Activation::silu));
  }
  return results;
}

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same_bits(a[i], b[i])) << what << ", use " << i;
  }
}

TEST_P(Streams, MayUseALayerAgain) {
  const Chain whole = plain(DType::float32);
  WeightStream stream(GetParam().placement());
  const Chain chain = streamed(DType::float32, stream);
  const auto kept = [] {
    return memory_by_purpose(false).present[static_cast<std::size_t>(Purpose::weights)];
  };
  const std::int64_t kept_before = kept(), read_before = rows_read(chain);
  const std::vector<ops::Linear> layers =
      with_layers_again(chain, [&](const ops::Linear& layer) { return stream.again(layer); });
  EXPECT_EQ(kept(), kept_before) << "no further copy of a weight";
  EXPECT_EQ(rows_read(chain), read_before);
  const std::vector<ops::Linear> expected =
      with_layers_again(whole, [](const ops::Linear& layer) { return layer; });
  ASSERT_EQ(layers.size(), shapes.size() + used_again.size());
  for (unsigned pass = 0; pass < 3; ++pass) {
    const std::int64_t rows = pass == 1 ? 0 : 70 + pass;
    expect_same(results_of(layers, layers.size(), pass, rows),
                results_of(expected, expected.size(), pass, rows), fmt::format("pass {}", pass));
  }
}

// Passes that end before, at and after the first layer that is used again.
TEST_P(Streams, MayUseALayerAgainAfterAPassThatEndedEarly) {
  WeightStream stream(GetParam().placement());
  const Chain chain = streamed(DType::float32, stream);
  const std::vector<ops::Linear> layers =
      with_layers_again(chain, [&](const ops::Linear& layer) { return stream.again(layer); });
  const std::vector<ops::Linear> expected =
      with_layers_again(plain(DType::float32), [](const ops::Linear& layer) { return layer; });
  for (const std::size_t used :
       {std::size_t{1}, shapes.size(), shapes.size() + 1, shapes.size() + 3, layers.size() - 1}) {
    const std::string what = fmt::format("after {} layers", used);
    expect_same(results_of(layers, used, 7, 9), results_of(expected, used, 7, 9), what);
    expect_same(results_of(layers, layers.size(), 8, 9),
                results_of(expected, expected.size(), 8, 9), what);
  }
}

// As after a step of a training of all weights. What was fetched ahead by a pass that ended early
// is not used.
TEST_P(Streams, TakeOtherValuesInTheirMemory) {
  WeightStream stream(GetParam().placement());
  Chain chain = streamed(DType::float32, stream);
  const std::vector<ops::Linear> layers =
      with_layers_again(chain, [&](const ops::Linear& layer) { return stream.again(layer); });
  if (GetParam().residence == Residence::host) {  // on a CPU they stay in a file
    EXPECT_THROW(chain.layers[0].set_together(chain.weights[0].rows(), chain.biases[0]), Error);
    return;
  }
  const auto kept = [] {
    return memory_by_purpose(false).present[static_cast<std::size_t>(Purpose::weights)];
  };
  const std::int64_t kept_before = kept();
  for (const std::size_t used : {std::size_t{0}, std::size_t{3}, layers.size()}) {
    results_of(layers, used, 7, 9);
    const auto seed = static_cast<unsigned>(50 + used);
    {
      const Chain other = plain(DType::float32, seed);
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        chain.layers[i].set_together(other.weights[i].rows(), other.biases[i]);
      }
    }
    EXPECT_EQ(kept(), kept_before);
    const std::vector<ops::Linear> expected = with_layers_again(
        plain(DType::float32, seed), [](const ops::Linear& layer) { return layer; });
    expect_same(results_of(layers, layers.size(), 8, 9),
                results_of(expected, expected.size(), 8, 9), fmt::format("after {} layers", used));
  }
}

TEST(WeightStream, ALayerOfAnotherStreamIsRefused) {
  WeightStream stream({Residence::host, test::world(), {}, false, 0});
  const CountedWeight weight({40, 24}, 1, DType::float32);
  EXPECT_THROW(stream.again(ops::Linear(weight.values)), Error);
}

TEST(WeightStream, AFailureToReadIsThrownAtUse) {
  WeightStream stream({Residence::host, test::world(), {}, false, 0});
  bool fails = false;
  const CountedWeight weight({40, 24}, 1, DType::float32);
  ops::WeightRows rows = weight.rows();
  rows.read = [&fails, inner = rows.read](std::int64_t first, std::int64_t count, void* into,
                                          std::int64_t stride) {
    if (fails) fail(Status::data, "the file has shrunk");
    inner(first, count, into, stride);
  };
  const ops::Linear layer = stream.add(rows, {});
  const Tensor x = random_tensor({2, 24}, 1);
  const Tensor y = layer(x);
  fails = true;
  EXPECT_THROW(layer(x), Error);
  fails = false;
  EXPECT_TRUE(same_bits(layer(x), y));
}

// A weight of 17.6 MB is fetched in two parts.
TEST(WeightStream, LargeWeightsHaveParts) {
  Tensor weight = Tensor::empty({2000, 2200}, DType::float32);
  for (std::int64_t i = 0; i < weight.numel(); ++i) {
    weight.data<float>()[i] = float((i * 7919) % 1009) - 504;
  }
  const Tensor x = random_tensor({3, 2200}, 1);
  const Tensor expected = ops::Linear(weight)(x);
  for (const Residence residence : {Residence::sharded, Residence::host}) {
    WeightStream stream({residence, test::world(), {}, false, 0});
    const auto read = [&](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
      for (std::int64_t r = 0; r < count; ++r) {
        std::memcpy(static_cast<float*>(into) + r * stride, weight.rows(first + r, 1).raw(),
                    2200 * sizeof(float));
      }
    };
    const ops::Linear layer = stream.add({2200, 2000, DType::float32, read, {}, {}}, {});
    EXPECT_TRUE(same_bits(layer(x), expected));
  }
}

// What passes through is counted as memory of exchanges, and is free between passes.
TEST(WeightStream, KeepsNothingButSharesBetweenPasses) {
  const auto at = [](Purpose purpose) { return static_cast<std::size_t>(purpose); };
  WeightStream stream({Residence::sharded, test::world(), {}, false, 0});
  const auto before = memory_by_purpose(false).present[at(Purpose::exchange)];
  const Chain chain = streamed(DType::float32, stream);
  chain(random_tensor({9, 24}, 1));
  EXPECT_EQ(memory_by_purpose(false).present[at(Purpose::exchange)], before);
}

}  // namespace
}  // namespace reelmesh
