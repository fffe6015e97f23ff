#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"

namespace reelmesh::test {

/// Calls f, which must throw an Error of this status whose message contains every one of `parts`.
template <class F, class... Parts>
void expect_error(Status status, F&& f, const Parts&... parts) {
  try {
    f();
    ADD_FAILURE() << "no error, expected status " << static_cast<int>(status);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.status()), static_cast<int>(status)) << error.what();
    for (const std::string& part : std::vector<std::string>{std::string(parts)...}) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  }
}

}  // namespace reelmesh::test
