#include "comm/together.hpp"

#include <new>

#include "base/log.hpp"
#include "comm/group_values.hpp"

namespace reelmesh::comm {

void run_collectively(const Group& group, const std::function<void()>& work) {
  Status status = Status::ok;
  std::string message;
  try {
    work();
  } catch (const Error& error) {
    status = error.status();
    message = error.what();
  } catch (const std::bad_alloc&) {
    status = Status::unavailable;
    message = "no memory left";
  } catch (const std::exception& error) {
    status = Status::internal;
    message = error.what();
  }
  const bool failed = status != Status::ok;
  // The lowest rank that failed broadcasts its error.
  const auto size = static_cast<std::int64_t>(group.size());
  const std::int64_t failed_key = group.max(failed ? size - group.rank() : std::int64_t{0});
  if (failed_key == 0) return;
  const int failed_rank = static_cast<int>(size - failed_key);
  message = group.broadcast(message, failed_rank);
  status = broadcast_value(group, status, failed_rank);
  throw Error(status, message, broadcast_value(group, log::rank(), failed_rank));
}

void run_on_first_rank(const Group& group, const std::function<void()>& work) {
  run_collectively(group, [&] {
    if (group.rank() == 0) work();
  });
}

}  // namespace reelmesh::comm
