#pragma once
// OUT/status.json: what a running job does at the moment.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <thread>

#include "base/progress.hpp"
#include "comm/watchdog.hpp"
#include "pipeline/clip_states.hpp"

namespace reelmesh::pipeline {

/// What a job says of itself. Both functions are called by the thread of StatusFile.
struct StatusContent {
  /// How far it is, by keys of its own. activities: of the ranks.
  std::function<nlohmann::ordered_json(const std::vector<comm::Activity>& activities)> job;
  /// Of how many steps a rank that is in one does one; null: not known.
  std::function<int(const comm::Activity& rank)> steps;
  /// The same for a line of the log; null: the job writes such lines itself. job: what job() gave;
  /// seconds: of a steady clock.
  std::function<std::string(const nlohmann::ordered_json& job,
                            const std::vector<comm::Activity>& activities, double seconds)>
      line;
};

/// Of a job that makes clips: how many they are, how many of them it has done, and the clips at
/// work. found: all clips when it began; made: those that it makes, in order. planned: must outlive
/// the result.
StatusContent status_of_clips(const Job& job, const JobPlan& planned, const FoundClips& found,
                              const std::vector<ClipOutline>& made);

/// A thread that says on standard error how far the job is (ProgressLine), and replaces
/// OUT/status.json every two seconds, less often if that would take more
/// than 5 % of its time: the time, how far the job is, and for each rank its stage, clip, step and
/// layer, as the watchdog last heard. A plain file that is replaced by rename, since
/// readers of HDF5's SWMR mode need a file system that keeps the order of writes, which NFS does
/// not, and parallel HDF5 does not offer it. Errors are ignored: the results do not depend on it.
class StatusFile {
 public:
  /// On the rank that was launched first. watchdog, and what `content` refers to: must outlive the
  /// object.
  StatusFile(const std::filesystem::path& output, StatusContent content,
             const comm::Watchdog& watchdog);
  /// Ends the thread. The file stays, so that it shows what a job that fails did last.
  ~StatusFile();
  StatusFile(const StatusFile&) = delete;
  StatusFile& operator=(const StatusFile&) = delete;

  /// Ends the thread and removes the file: job.h5 says what became of the job.
  void remove();

 private:
  void end();
  void write();

  std::filesystem::path folder_;
  StatusContent content_;
  const comm::Watchdog& watchdog_;
  std::mutex mutex_;
  std::condition_variable changed_;
  ProgressLine line_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace reelmesh::pipeline
