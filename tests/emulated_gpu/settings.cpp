#include "emulated_gpu/settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace reelmesh::emulated {
namespace {

// part: which of the numbers that colons separate.
std::int64_t number(const char* name, std::int64_t otherwise, int part = 0) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  for (; part > 0; --part) {
    text = std::strchr(text, ':');
    if (text == nullptr) stop(std::string(name) + " lacks a number behind a colon");
    ++text;
  }
  const long long value = std::strtoll(text, &end, 10);
  if ((*end != '\0' && *end != ':') || value < 0) {
    stop(std::string(name) + " is '" + text + "', expected a number from 0");
  }
  return value;
}

std::string text(const char* name, const char* otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr || *given == '\0' ? otherwise : given;
}

}  // namespace

const Settings& settings() {
  static const Settings all{
      static_cast<int>(number("REELMESH_EMULATED_GPUS", 1)),
      static_cast<std::size_t>(number("REELMESH_EMULATED_GPU_MEMORY", std::int64_t{16} << 30)),
      static_cast<std::size_t>(number("REELMESH_EMULATED_GPU_TAKEN", 0)),
      number("REELMESH_EMULATED_GPU_TAKEN", 0, 1),
      number("REELMESH_EMULATED_GPU_DELAY", 0),
      std::max<std::int64_t>(1, number("REELMESH_EMULATED_GPU_ROWS", 1)),
      number("REELMESH_EMULATED_CUBLASLT_FEW", 0),
      number("REELMESH_EMULATED_GPU_ORDER", 0),
      text("REELMESH_EMULATED_GPU_NAME", "emulated GPU"),
      static_cast<int>(number("REELMESH_EMULATED_GPU_DRIVER", toolkit))};
  return all;
}

void stop(const std::string& message) {
  std::fprintf(stderr, "emulated GPU: %s\n", message.c_str());
  std::abort();
}

}  // namespace reelmesh::emulated
