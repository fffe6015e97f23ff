#include "failure.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <thread>

#include "base/text.hpp"

namespace reelmesh::app {

namespace {

// A message that repeats a long value from a file without most of that value.
std::string shortened(const std::string& message) {
  constexpr std::size_t max_bytes = 2000, kept = 900;  // at each end
  if (message.size() <= max_bytes) return message;
  return fmt::format("{} ... {}", text_prefix(message, kept), text_suffix(message, kept));
}

}  // namespace

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.status(), shortened(error.what()), error.rank()};
  } catch (const std::bad_alloc&) {
    return {Status::unavailable, "out of memory", {}};
  } catch (const std::filesystem::filesystem_error& error) {
    return {Status::io, error.what(), {}};
  } catch (const std::exception& error) {
    return {Status::internal, fmt::format("internal error: {}", error.what()), {}};
  } catch (...) {
    return {Status::internal, "internal error of unknown kind", {}};
  }
}

void wait_for_lower_ranks() {
  const int rank = number_of(log::rank());
  if (rank == 0) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(std::min(2000 + 50 * rank, 5000)));
}

void wait_for_other_reports(const Failure& failure, comm::Watchdog& watchdog) {
  if (!failure.rank) return wait_for_lower_ranks();
  // Several ranks may fail at the same time, such as replicas whose disk is full.
  const bool first = *failure.rank == log::rank() &&
                     (!watchdog.has_queues() || watchdog.take(comm::Watchdog::reports) == 0);
  if (!first) std::this_thread::sleep_for(std::chrono::seconds(10));
}

}  // namespace reelmesh::app
