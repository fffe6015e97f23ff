#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace reelmesh::app {

/// Gives each test a temporary folder, which is the current folder while the test runs.
class Scratch : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("reelmesh_") + test.test_suite_name() + "_" + test.name() + "_" +
               std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
  }
  void TearDown() override {
    std::filesystem::current_path(std::filesystem::temp_directory_path());
    std::filesystem::remove_all(folder_);
  }
  static void write(const std::string& name, std::string_view text) {
    std::ofstream(name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path folder_;
};

/// "64: message" of the Error that `call` throws, "" if it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.status())) + ": " + error.what();
  }
  return "";
}

/// The program, for a shell.
inline const std::string program = REELMESH_PROGRAM;

/// Words of a command line, and the error that they give (error_of).
struct Wrong {
  std::vector<std::string> words;
  std::string error;
};

}  // namespace reelmesh::app
