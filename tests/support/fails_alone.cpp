// A test that one of its ranks leaves while the others wait for it (support/mpi_main.cpp).
#include <gtest/gtest.h>

#include "support/ranks.hpp"

namespace reelmesh {
namespace {

TEST(Ranks, FailAlone) {
  ASSERT_NE(test::world().rank(), 1);
  test::world().barrier();
}

}  // namespace
}  // namespace reelmesh
