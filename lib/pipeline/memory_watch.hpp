#pragma once
// The memory of a rank while a job runs, compared with what the plan says of its stages.
#include <optional>
#include <string>

#include "pipeline/work.hpp"
#include "plan/plan.hpp"
#include "tensor/device.hpp"

namespace reelmesh::pipeline {

/// A rank has less memory than it needs next.
struct MemoryShortage {
  std::string found;         ///< "needs 3 GiB while it denoises, found room for 2 GiB"
  bool within_step = false;  ///< although the plan said that there is enough
};

/// What the plan says that a rank takes in a stage.
std::int64_t planned_bytes(Stage stage, const MemoryPlan& memory, int rank);

class MemoryWatch {
 public:
  explicit MemoryWatch(Device device) : device_(device) {}

  /// Measures the memory where this rank computes, for status.json (measured_memory), and requests
  /// a new plan (stop::request_new_plan()) if it is less than this rank of the plan needs in the
  /// stage that comes next:
  /// - on a GPU, if what is free of it, together with what the rank has, is less;
  /// - on CPUs, if what the host or its cgroup has available is less; or if the ranks of a node
  ///   need more than 1.1 times the host's memory with swap, or than its cgroup may have, as before
  ///   a job begins: a limit was lowered.
  /// A GPU that had too little when the job was planned is not found short before it has less.
  /// Not collective; takes about 0.1 ms.
  void look(Stage next, const Plan& plan, int rank);
  /// A step was left because memory was short within it. lack: what the allocation said.
  void note_failed_step(const std::string& lack);
  /// The first shortage since forget(); empty on ranks that have found none.
  const std::optional<MemoryShortage>& found() const { return found_; }
  void forget() { found_.reset(); }

 private:
  std::int64_t room_on_gpu(Stage next, const MemoryPlan& memory, int rank) const;
  std::int64_t room_on_host(Stage next, const Plan& plan, int rank) const;
  void request(MemoryShortage found);

  Device device_;
  std::optional<MemoryShortage> found_;
};

}  // namespace reelmesh::pipeline
