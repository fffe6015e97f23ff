#include "plan/describe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/workloads.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;
using test::cogvideox_2b;
using test::machine_with;
using test::one_size_workload;
using test::stdit_xl;
using testing::HasSubstr, testing::Not;

json described(const DenoiseWorkload& workload, const PlanMachine& machine,
               const ParallelRequest& request = {}) {
  return describe(make_plan(one_size_workload(workload), machine, request), 0);
}

TEST(Describe, NamesWeights) {
  ParallelRequest request;
  request.cfg = 1;
  DenoiseWorkload small = cogvideox_2b();
  small.latents = {2, 8, 10};
  small.text_tokens = 7;
  PlanMachine machine = machine_with(2);
  const Plan equal = make_plan(one_size_workload(small), machine, request);
  EXPECT_EQ(plan_text(describe(equal, 0)).find("speeds"), std::string::npos);
  machine.rank_weights.values = {1, 3};
  const std::string text =
      plan_text(describe(make_plan(one_size_workload(small), machine, request), 0));
  EXPECT_NE(text.find("speeds: 1, 3"), std::string::npos) << text;
  EXPECT_NE(text.find("[0:2, 1:4, 0:5]"), std::string::npos) << text;
}

TEST(Describe, NamesRolesMeshAndBoxes) {
  ParallelRequest request;
  request.mode = Mode::split;
  request.cfg = 1;
  DenoiseWorkload small = cogvideox_2b();
  small.latents = {2, 8, 10};
  small.text_tokens = 7;
  const std::string text =
      plan_text(describe(make_plan(one_size_workload(small), machine_with(4), request), 0));
  EXPECT_NE(text.find("split"), std::string::npos);
  EXPECT_NE(text.find("denoise: ranks 1-2"), std::string::npos) << text;
  EXPECT_NE(text.find("mesh: cfg 1 x ring 1 x ulysses 2 (lowest cost of 2 meshes; "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("[0:2, 2:4, 0:5]"), std::string::npos) << text;
  EXPECT_NE(text.find("text tokens [7]: [0:4] [4:7]"), std::string::npos) << text;
}

TEST(Describe, SaysThatATextIsWhole) {
  const std::string text =
      plan_text(describe(make_plan(one_size_workload(stdit_xl()), machine_with(4), {}), 0));
  for (const char* part : {"4 ranks", "denoise: ranks 0-3", "[12:16, 0:16, 0:16]",
                           "text tokens [120]: whole on each rank"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_EQ(text.find("mesh:"), std::string::npos) << "there is nothing to choose";
}

TEST(Describe, TheTextIsThatOfTheValueAlone) {
  const json plan = described(cogvideox_2b(), machine_with(6));
  const std::string text = plan_text(plan, Detail::ranks);
  EXPECT_EQ(plan_text(json::parse(plan.dump()), Detail::ranks), text);
  // Every value that is shown is looked up: the text changes with it.
  const auto changes = [&](const char* pointer, const json& value) {
    json other = plan;
    other[json::json_pointer(pointer)] = value;
    EXPECT_NE(plan_text(other, Detail::ranks), text) << pointer;
  };
  changes("/ranks", 7);
  changes("/hosts", 2);
  changes("/mode", "split");
  changes("/device_map", "0-3:0");
  changes("/denoise/0/count", 5);
  changes("/decode/0/count", 5);
  changes("/weights/residence", "host");
  changes("/weights/all", 1);
  changes("/queue_bytes", -1);
  changes("/layout/mesh/ring", 9);
  changes("/layout/tokens/boxes/1/extent/1", 1);
  changes("/layout/text_tokens/shape/0", 1);
  changes("/by_rank/5/memory/peak", 1);
  changes("/by_rank/5/memory/limit", 1);
  changes("/by_rank/5/step_flops", 1);
  changes("/by_rank/5/tokens/offset/1", 1);
  changes("/decoder_weights", 1);
  changes("/offloads", true);
  changes("/unloads_decoder", true);
  changes("/experts", {{"steps", {3, 4}}});
  changes("/speeds", {1, 2});
  changes("/step/sent_bytes", 1);
}

TEST(Describe, TheLayoutOfAClipDoesNotGrowWithTheRanks) {
  const Plan plan = make_plan(one_size_workload(cogvideox_2b()), machine_with(512), {});
  const json layout = describe_layout(plan, 0);
  EXPECT_LT(layout.dump().size(), 8000U);
  EXPECT_FALSE(layout.contains("by_rank"));
  EXPECT_THAT(plan_text(layout), HasSubstr("more (plan --json has all)"));
  EXPECT_THAT(plan_text(layout), Not(HasSubstr("memory: ")));
  EXPECT_EQ(describe(plan, 0).at("by_rank").size(), 512U);
}

}  // namespace
}  // namespace reelmesh
