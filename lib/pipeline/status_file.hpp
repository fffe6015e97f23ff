#pragma once
// OUT/status.json: what a running job does at the moment.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "comm/watchdog.hpp"
#include "job/job_plan.hpp"

namespace reelmesh::pipeline {

/// A thread that replaces OUT/status.json every two seconds, less often if that would take more
/// than 5 % of its time: the numbers of all and of complete clips, and for each rank its stage,
/// clip, step and layer, as the watchdog last heard. A plain file that is replaced by rename, since
/// readers of HDF5's SWMR mode need a file system that keeps the order of writes, which NFS does
/// not, and parallel HDF5 does not offer it. Errors are ignored: the results do not depend on it.
class StatusFile {
 public:
  /// planned, watchdog: must outlive the object.
  StatusFile(const std::filesystem::path& output, const JobPlan& planned,
             const comm::Watchdog& watchdog);
  /// Ends the thread. The file stays, so that it shows what a job that fails did last.
  ~StatusFile();
  StatusFile(const StatusFile&) = delete;
  StatusFile& operator=(const StatusFile&) = delete;

  /// Ends the thread and removes the file: job.h5 says what became of the job.
  void remove();

 private:
  void end();
  void write() const;

  std::filesystem::path folder_;
  const JobPlan& planned_;
  const comm::Watchdog& watchdog_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace reelmesh::pipeline
