#include "media/libav.hpp"

#include <fmt/format.h>

#include <cstdarg>
#include <cstdio>

#include "base/text.hpp"

namespace reelmesh::media {
namespace {

// Bounds what a damaged header makes the libraries allocate at once; a frame of the largest size
// that is read takes less.
constexpr std::size_t max_allocation = std::size_t{512} << 20U;

thread_local char first_error[256] = "";

void keep_error(void*, int level, const char* format, va_list arguments) {
  // The first error is the cause of those that follow.
  if (level > AV_LOG_ERROR || first_error[0] != '\0') return;
  std::vsnprintf(first_error, sizeof first_error, format, arguments);
}

Libav load() {
  const auto open = [](const char* name, int major) {
    return SharedLibrary(fmt::format("FFmpeg's {}, which reads videos,", name),
                         fmt::format("{}.so.{}", name, major), REELMESH_LIBAV_FOLDER);
  };
  Libav libraries{.util = open("libavutil", LIBAVUTIL_VERSION_MAJOR),
                  .codec = open("libavcodec", LIBAVCODEC_VERSION_MAJOR),
                  .format = open("libavformat", LIBAVFORMAT_VERSION_MAJOR),
                  .scale = open("libswscale", LIBSWSCALE_VERSION_MAJOR)};
  libraries.av_log_set_callback(keep_error);
  libraries.av_max_alloc(max_allocation);
  return libraries;
}

}  // namespace

const Libav& libav() {
  static const Libav libraries = load();
  return libraries;
}

void forget_libav_errors() { first_error[0] = '\0'; }

bool has_libav_error() { return first_error[0] != '\0'; }

std::string libav_reason(int status) {
  std::string reason = one_line(first_error);
  if (has_libav_error()) return reason.erase(reason.find_last_not_of(' ') + 1);
  char meaning[AV_ERROR_MAX_STRING_SIZE] = "";
  libav().av_strerror(status, meaning, sizeof meaning);
  return meaning;
}

}  // namespace reelmesh::media
