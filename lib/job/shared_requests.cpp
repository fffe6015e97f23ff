#include "job/shared_requests.hpp"

#include <malloc.h>

#include <cstring>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/group_values.hpp"
#include "comm/shared_memory.hpp"
#include "job/requests.hpp"

namespace reelmesh {
namespace {

// Between the place that a request came from and its line; in neither of them.
constexpr char separator = '\0';

}  // namespace

SharedRequests::SharedRequests(const comm::Group& host, const std::vector<ClipRequest>& requests)
    : count_(requests.size()) {
  std::string lines;
  std::vector<std::int64_t> ends;
  for (const ClipRequest& request : requests) {
    bytes_of_each_rank_ += request_bytes(request);
    if (host.rank() > 0) continue;
    lines += request.where;
    lines += separator;
    lines += request_line(request);
    ends.push_back(std::ssize(lines));
  }
  const std::int64_t bytes = comm::broadcast_value(host, std::ssize(lines), 0);
  const std::size_t begin = count_ * sizeof(std::int64_t);
  memory_ = comm::shared_memory(host, static_cast<std::int64_t>(begin) + bytes);
  if (host.rank() == 0) {
    std::memcpy(memory_.get(), ends.data(), begin);
    std::memcpy(memory_.get() + begin, lines.data(), lines.size());
  }
  host.barrier();
}

ClipRequest SharedRequests::at(std::size_t clip) const {
  expect(clip < count_, "request {} of {}", clip, count_);
  const auto end = [&](std::size_t i) {
    std::int64_t place = 0;
    std::memcpy(&place, memory_.get() + i * sizeof place, sizeof place);
    return static_cast<std::size_t>(place);
  };
  const std::size_t first = clip == 0 ? 0 : end(clip - 1);
  const auto* lines = reinterpret_cast<const char*>(memory_.get()) + count_ * sizeof(std::int64_t);
  const std::string_view text(lines + first, end(clip) - first);
  const std::size_t middle = text.find(separator);
  return parse_request(std::string(text.substr(middle + 1)), "",
                       std::string(text.substr(0, middle)));
}

void share_requests_together(const comm::Group& world, Job& job, std::size_t min) {
  if (world.size() == 1 || job.clips.size() < min) return;
  const comm::Group host = world.on_this_host();
  try {
    job.shared_clips = std::make_shared<const SharedRequests>(host, job.clips);
  } catch (const Error& error) {
    log::info("each rank keeps the list of clips for itself: {}", error.what());
    return;
  }
  std::vector<ClipRequest>().swap(job.clips);  // not = {}, which keeps its room
  ::malloc_trim(0);
}

std::size_t Job::clip_count() const { return shared_clips ? shared_clips->size() : clips.size(); }

ClipRequest Job::request(std::size_t clip) const {
  return shared_clips ? shared_clips->at(clip) : clips.at(clip);
}

std::int64_t Job::request_bytes() const {
  if (shared_clips) return shared_clips->bytes_of_each_rank();
  std::int64_t bytes = 0;
  for (const ClipRequest& request : clips) bytes += reelmesh::request_bytes(request);
  return bytes;
}

}  // namespace reelmesh
