#pragma once
// Shared by the fuzz targets. A target is a file tests/fuzz/NAME.cpp with FUZZ_TARGET(NAME), and a
// folder tests/fuzz/corpus/NAME with inputs; CMakeLists.txt finds both.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>

#include "base/error.hpp"

/// Begins the function of a target, FUZZ_TARGET(NAME) { … return 0; }, whose input is `size` bytes
/// at `data`: libFuzzer's entry point, or fuzz_NAME, as test_fuzz runs all targets in one program.
#ifdef REELMESH_LIBFUZZER
#define FUZZ_TARGET(name) \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
#else
#define FUZZ_TARGET(name) int fuzz_##name(const std::uint8_t* data, std::size_t size)
#endif

namespace reelmesh::fuzz {

/// Calls `parse`, which may refuse its input by an Error. Error(internal) is a bug and ends the
/// process; so do other exceptions, which are not caught.
template <class Parse>
void refusals_allowed(Parse&& parse) {
  try {
    parse();
  } catch (const Error& error) {
    if (error.status() != Status::internal) return;
    std::cerr << "internal error: " << error.what() << std::endl;
    std::abort();
  }
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A new temporary folder of this process, in memory where the system has /dev/shm. Removed when
/// the process ends normally.
std::filesystem::path make_folder();

/// Writes a file, replacing its contents.
void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace reelmesh::fuzz
