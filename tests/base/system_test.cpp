#include "base/system.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

namespace reelmesh {
namespace {

TEST(System, RaisesTheNumberOfOpenFiles) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(max_open_files(), 100);
  raise_max_open_files();
  EXPECT_EQ(max_open_files(), std::min<rlim_t>(before.rlim_max, 1 << 20));
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace reelmesh
