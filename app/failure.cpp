#include "failure.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <thread>

namespace reelmesh::app {

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.status(), error.what(), error.rank()};
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
