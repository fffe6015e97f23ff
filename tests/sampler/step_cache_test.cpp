#include "sampler/step_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace reelmesh {
namespace {

std::vector<int> steps(const std::vector<bool>& computed) {
  std::vector<int> found;
  for (std::size_t i = 0; i < computed.size(); ++i) {
    if (computed[i]) found.push_back(int(i));
  }
  return found;
}

std::vector<int> every(const char* text, int calls) {
  return steps(computed_steps(StepCache::read(text).value(), calls));
}

using Steps = std::vector<int>;

TEST(StepCache, IsReadAsItIsWritten) {
  for (const char* text : {"none", "teacache:0", "teacache:0.1", "teacache:1e+30", "every:2",
                           "every:1000", "every:3,from:20,to:80", "every:3,from:0.5,to:99.25"}) {
    const auto cache = StepCache::read(text);
    ASSERT_TRUE(cache) << text;
    EXPECT_EQ(cache->text(), text);
  }
  EXPECT_EQ(StepCache::read("every:3,from:0,to:100")->text(), "every:3");
}

TEST(StepCache, OtherTextsAreRefused) {
  for (const char* text : {"",
                           "None",
                           "teacache",
                           "teacache:",
                           "teacache:-0.1",
                           "teacache:nan",
                           "teacache:inf",
                           "teacache:0.1 ",
                           "teacache:0.1,from:1,to:2",
                           "every",
                           "every:",
                           "every:1",
                           "every:1001",
                           "every:2.5",
                           "every:-3",
                           "every:3,from:20",
                           "every:3,to:80",
                           "every:3,to:80,from:20",
                           "every:3,from:80,to:20",
                           "every:3,from:20,to:20",
                           "every:3,from:-1,to:20",
                           "every:3,from:0,to:101",
                           "every:3,from:nan,to:50",
                           "every:3,from:0,to:50,",
                           "often:3"}) {
    EXPECT_FALSE(StepCache::read(text)) << text;
  }
}

TEST(CacheCoefficients, AreReadAsTheyAreWritten) {
  const CacheCoefficients some({-31.0658903, 25.4732368, -5.92380459, 0.1, -3.61568434e-03});
  EXPECT_EQ(CacheCoefficients::read(some.text()), some);
  EXPECT_EQ(CacheCoefficients::read("1,2,3,4,5")->values(), (std::array<double, 5>{1, 2, 3, 4, 5}));
  for (const char* text : {"", "1", "1,2,3,4", "1,2,3,4,5,6", "1,2,3,4,nan", "1,2,3,4,inf",
                           "1,2,,4,5", "1, 2, 3, 4, 5", "a,b,c,d,e"}) {
    EXPECT_FALSE(CacheCoefficients::read(text)) << text;
  }
}

TEST(CacheCoefficients, TheFirstIsOfTheHighestPower) {
  EXPECT_EQ(CacheCoefficients({1, 2, 3, 4, 5})(10), 12345);
}

TEST(ComputedSteps, OfTeaCache) {
  const auto cache = StepCache::read("teacache:1").value();
  const CacheCoefficients identity({0, 0, 0, 1, 0});
  // Sums: 0.5, 1.0 (computed), 0.9, 1.8 (computed), 0.25, 0.5; the last is computed.
  const std::vector<double> distances{7, 0.5, 0.5, 0.9, 0.9, 0.25, 0.25, 0.25};
  EXPECT_EQ(steps(computed_steps(cache, 8, identity, distances)), (Steps{0, 2, 4, 7}));
  EXPECT_EQ(steps(computed_steps(cache, 8, CacheCoefficients({0, 0, 0, 2, 0}), distances)),
            (Steps{0, 1, 2, 3, 4, 6, 7}));
  EXPECT_EQ(steps(computed_steps(cache, 8, CacheCoefficients({0, 0, 0, 0, -1}), distances)),
            (Steps{0, 7}));
  EXPECT_EQ(steps(computed_steps(StepCache::read("teacache:0").value(), 8, identity, distances)),
            (Steps{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ComputedSteps, OfWindows) {
  EXPECT_EQ(every("every:3", 8), (Steps{0, 3, 6, 7}));
  EXPECT_EQ(every("every:3,from:20,to:80", 10), (Steps{0, 1, 2, 5, 8, 9}));
  EXPECT_EQ(every("every:2,from:25,to:100", 9), (Steps{0, 1, 2, 3, 5, 7, 8}));
  EXPECT_EQ(every("every:1000", 5), (Steps{0, 4}));
  EXPECT_EQ(every("every:2,from:0.1,to:0.2", 5), (Steps{0, 1, 2, 3, 4})) << "no step in it";
}

TEST(ComputedSteps, TheFirstAndTheLastAlwaysAre) {
  for (int calls = 1; calls < 12; ++calls) {
    const std::vector<double> distances(std::size_t(calls), 0.0);
    for (const char* text : {"none", "teacache:5", "every:2", "every:3,from:10,to:90"}) {
      const std::vector<bool> computed =
          computed_steps(StepCache::read(text).value(), calls, CacheCoefficients(), distances);
      ASSERT_EQ(int(computed.size()), calls);
      EXPECT_TRUE(computed.front() && computed.back()) << text << " " << calls;
    }
  }
}

TEST(ComputedSteps, InWords) {
  EXPECT_EQ(computed_in_words({true, true, false, true, false, false, true, true, true}),
            "6 of 9 steps are computed: 0-1, 3, 6-8");
}

}  // namespace
}  // namespace reelmesh
