// What the ranks find out about their GPUs.
#include "job/machine.hpp"

#include "job/job_plan.hpp"
#include "support/gpu_ranks.hpp"
#include "tensor/gpus.hpp"

namespace reelmesh::test {
namespace {

class GpusOfRanks : public OnOwnDevice<testing::Test> {};

TEST_F(GpusOfRanks, AreKnownToThePlan) {
  const comm::Group all = test::world();
  const auto planned = [&](bool on_gpu) {
    return plan_conditions(Job{}, all.size(), 1, {}, DType::bfloat16, on_gpu)
        .machine.multiprocessors;
  };
  find_device(all, Backend::cpu);
  EXPECT_EQ(planned(false), 0);
  const Device found = find_device(all, Backend::cuda);
  EXPECT_GT(multiprocessors(found), 0);
  EXPECT_EQ(planned(true), all.max(std::int64_t{multiprocessors(found)}));
}

}  // namespace
}  // namespace reelmesh::test
