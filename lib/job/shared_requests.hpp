#pragma once
// What is asked for of the clips of a job, once for all ranks of a host.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "job/job.hpp"

namespace reelmesh {

/// Requests in memory that the ranks of a host share: a line of text each, as in job.h5, from which
/// a request is read when it is needed.
class SharedRequests {
 public:
  /// requests: the same on all ranks of the host. Collective over `host`; Error(unavailable) on all
  /// of them if there is no room.
  SharedRequests(const comm::Group& host, const std::vector<ClipRequest>& requests);

  std::size_t size() const { return count_; }
  ClipRequest at(std::size_t clip) const;
  /// request_bytes() of them all.
  std::int64_t bytes_of_each_rank() const { return bytes_of_each_rank_; }

 private:
  std::size_t count_;
  std::int64_t bytes_of_each_rank_ = 0;
  std::shared_ptr<std::byte> memory_;  // for each request where its line ends; then the lines
};

/// Moves the requests of a job to memory that the ranks of each host share, if there are at least
/// `min` of them, several ranks, and room for them. Collective; all ranks have the same job.
void share_requests_together(const comm::Group& world, Job& job, std::size_t min = 1000);

}  // namespace reelmesh
