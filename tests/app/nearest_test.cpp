#include "base/nearest.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "job/options.hpp"

namespace reelmesh::app {
namespace {

TEST(EditDistance, CountsMistakes) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("steps", ""), 5);
  EXPECT_EQ(edit_distance("", "ring"), 4);
  EXPECT_EQ(edit_distance("steps", "step"), 1);
  EXPECT_EQ(edit_distance("width", "widht"), 1) << "neighbours swapped";
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, FindsWhatWasMeant) {
  std::vector<std::string> names;
  for (const Option& key : reelmesh::options()) {
    if (key.is_of(JobKind::clips)) names.emplace_back(key.name);
  }
  EXPECT_EQ(nearest("sample.stepz", names), "sample.steps");
  EXPECT_EQ(nearest("sampel.height", names), "sample.height");
  EXPECT_EQ(nearest("steps", names), "sample.steps");
  EXPECT_EQ(nearest("model.steps", names), "sample.steps");
  EXPECT_EQ(nearest("sampel.scheduler", names), "sample.scheduler") << "not model.scheduler";
  EXPECT_EQ(nearest("output.if_exists", names), "output.if-exists");
  EXPECT_EQ(nearest("num_inference_steps", names), "") << "too far";
  EXPECT_EQ(nearest("nonsense", names), "");
}

}  // namespace
}  // namespace reelmesh::app
