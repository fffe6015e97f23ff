#include "failure.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <thread>

namespace reelmesh::app {

namespace {

// A message that repeats a long value from a file without most of that value.
std::string shortened(const std::string& message) {
  constexpr std::size_t max_bytes = 2000, kept = 900;  // at each end
  if (message.size() <= max_bytes) return message;
  const auto continues = [&](std::size_t i) {  // within a UTF-8 character
    return (static_cast<unsigned char>(message[i]) & 0xc0U) == 0x80U;
  };
  std::size_t first = kept, last = message.size() - kept;
  while (first > 0 && continues(first)) --first;
  while (last < message.size() && continues(last)) ++last;
  return message.substr(0, first) + " ... " + message.substr(last);
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

void wait_for_lower_ranks(int rank) {
  if (rank <= 0) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(std::min(500 + 50 * rank, 3000)));
}

}  // namespace reelmesh::app
