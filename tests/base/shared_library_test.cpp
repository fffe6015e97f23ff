#include "base/shared_library.hpp"

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using test::expect_error;

TEST(SharedLibrary, GivesItsFunctions) {
  const SharedLibrary library("the C library's mathematics", "libm.so.6", "/nowhere");
  EXPECT_EQ(library.function<double(double)>("sqrt")(9), 3);
}

TEST(SharedLibrary, ThatIsNotThereIsNamedWithItsPlaces) {
  expect_error(
      Status::unavailable, [] { SharedLibrary("Mathematics", "libnosuch.so.6", "/nowhere"); },
      "Mathematics cannot be loaded", "libnosuch.so.6", "LD_LIBRARY_PATH", "/nowhere",
      "cannot open shared object file");
}

TEST(SharedLibrary, OfAnotherVersionLacksFunctions) {
  const SharedLibrary library("Mathematics", "libm.so.6", "/nowhere");
  expect_error(
      Status::unavailable, [&] { library.function<void()>("square_the_circle"); },
      "Mathematics (libm.so.6) has no function square_the_circle");
}

}  // namespace
}  // namespace reelmesh
