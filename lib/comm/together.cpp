#include "comm/together.hpp"

#include <new>

namespace reelmesh::comm {

void together(const Group& group, const std::function<void()>& work) {
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
  const std::int64_t loudest = group.max(failed ? size - group.rank() : std::int64_t{0});
  if (loudest == 0) return;
  const int speaker = static_cast<int>(size - loudest);
  message = group.broadcast(message, speaker);
  status = static_cast<Status>(
      std::stoi(group.broadcast(std::to_string(static_cast<int>(status)), speaker)));
  const int rank = std::stoi(group.broadcast(std::to_string(Group::world().rank()), speaker));
  throw Error(status, message, rank);
}

}  // namespace reelmesh::comm
