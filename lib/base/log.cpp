#include "base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/system.hpp"
#include "base/text.hpp"

namespace reelmesh::log {
namespace {

LaunchedRank& current_rank() {
  static LaunchedRank rank = launch_rank();
  return rank;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::string_view prefix(Level level) {
  static const bool color = may_style(STDERR_FILENO);
  switch (level) {
    case Level::debug:
    case Level::info:
      return "";
    case Level::warning:
      return color ? "\x1b[1;33mreelmesh: warning:\x1b[0m " : "reelmesh: warning: ";
    case Level::error:
      return color ? "\x1b[1;31mreelmesh: error:\x1b[0m " : "reelmesh: error: ";
  }
  return "";
}

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("reelmesh", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    // A progress line leaves the cursor at its start, so on a terminal a message erases it first.
    made.set_pattern(isatty(STDERR_FILENO) ? "\x1b[K%v" : "%v");
    made.flush_on(spdlog::level::debug);
    return made;
  }();
  return instance;
}

}  // namespace

LaunchedRank launch_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    int rank = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, rank);
    if (error == std::errc() && stop == end && rank >= 0) return LaunchedRank{rank};
  }
  return first_rank;
}

void set_rank(LaunchedRank rank) { current_rank() = rank; }

LaunchedRank rank() { return current_rank(); }

void set_level(Level level) { logger().set_level(to_spdlog(level)); }

void say(Level level, const std::string& message) {
  if (rank() != first_rank) return;
  if (level < Level::warning) {
    logger().log(to_spdlog(level), "{}", printable_lines(message));
  } else {
    logger().log(to_spdlog(level), "{}{}", prefix(level), one_line(message));
  }
}

void say_here(Level level, const std::string& message, LaunchedRank on_rank) {
  logger().log(to_spdlog(level), "{}rank {}: {}", prefix(level), number_of(on_rank),
               one_line(message));
}

}  // namespace reelmesh::log
