#include "base/handle.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

std::vector<int> released;
void release(int value) { released.push_back(value); }
using Owner = Handle<int, release, -1>;

TEST(Handle, ReleasesOnceAndNeverTheNullValue) {
  released.clear();
  {
    Owner none;
    Owner a(7);
    EXPECT_FALSE(none);
    EXPECT_TRUE(a);
    Owner b(std::move(a));
    EXPECT_FALSE(a);
    EXPECT_EQ(b.get(), 7);
  }
  EXPECT_EQ(released, std::vector<int>{7});
}

TEST(Handle, AssignmentReleasesWhatWasHeld) {
  released.clear();
  Owner a(1), b(2);
  a = std::move(b);
  EXPECT_EQ(released, std::vector<int>{1});
  a.reset();
  a.reset();
  EXPECT_EQ(released, (std::vector<int>{1, 2}));
}

TEST(Error, CarriesStatusAndMessage) {
  test::expect_error(
      Status::no_input, [] { fail(Status::no_input, "{}: missing", "a.json"); }, "a.json: missing");
  EXPECT_NO_THROW(require(true, Status::io, "never"));
  test::expect_error(
      Status::internal, [] { expect(false, "broken {}", 1); }, "broken 1");
}

}  // namespace
}  // namespace reelmesh
