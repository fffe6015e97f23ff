#include "tensor/purpose.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "tensor/tensor.hpp"

namespace reelmesh {
namespace {

std::int64_t present(Purpose purpose) {
  return memory_by_purpose(false).present[static_cast<std::size_t>(purpose)];
}

TEST(Purpose, InnermostScopeCountsUntilTheTensorIsFreed) {
  constexpr std::int64_t mib = 1 << 20;
  const std::int64_t weights = present(Purpose::weights), queue = present(Purpose::queue);
  const std::int64_t activations = present(Purpose::activations);
  std::optional<Tensor> kept;
  {
    const PurposeScope outer(Purpose::weights);
    kept = Tensor::empty({mib}, DType::float32);
    {
      const PurposeScope inner(Purpose::queue);
      const Tensor small = Tensor::empty({10}, DType::float32);
      EXPECT_EQ(present(Purpose::queue), queue + 40);
    }
    EXPECT_EQ(present(Purpose::queue), queue);
    const Tensor shared = kept->rows(0, 5);
    EXPECT_EQ(present(Purpose::weights), weights + 4 * mib) << "views take no memory";
  }
  const Tensor other = Tensor::empty({mib}, DType::float32);
  EXPECT_EQ(present(Purpose::activations), activations + 4 * mib);
  EXPECT_EQ(present(Purpose::weights), weights + 4 * mib);
  kept.reset();
  EXPECT_EQ(present(Purpose::weights), weights);
}

TEST(Purpose, KnowsWhatThereWasAtThePeakOfAll) {
  // More than any test before used. The memory is not touched.
  const MemoryByPurpose before = memory_by_purpose(false);
  std::int64_t huge = std::int64_t{1} << 20;
  for (const std::int64_t bytes : before.at_peak) huge += bytes;
  const auto index = [](Purpose purpose) { return static_cast<std::size_t>(purpose); };
  {
    const PurposeScope scope(Purpose::exchange);
    const Tensor first = Tensor::empty({huge}, DType::uint8);
  }
  {
    const PurposeScope scope(Purpose::workspace);
    const Tensor larger = Tensor::empty({2 * huge}, DType::uint8);
  }
  const MemoryByPurpose memory = memory_by_purpose(false);
  constexpr std::int64_t page = 4096;  // blocks are whole pages
  EXPECT_NEAR(memory.peak[index(Purpose::exchange)], huge, page);
  EXPECT_EQ(memory.at_peak[index(Purpose::exchange)], 0);
  EXPECT_NEAR(memory.at_peak[index(Purpose::workspace)], 2 * huge, page);
}

}  // namespace
}  // namespace reelmesh
