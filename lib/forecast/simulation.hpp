#pragma once
// The clock: a job played event by event with predicted times.
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/trace.hpp"
#include "forecast/durations.hpp"

namespace reelmesh {

/// Failures of a simulated job. Each ends the job on all ranks; it is started again and goes on
/// from the clips that are written and the steps that are saved.
struct SimulatedFailures {
  double every = 0;   ///< mean seconds between two failures of one rank; 0: there are none
  double pause = 60;  ///< seconds from a failure to the next start
};

struct SimulatedFailure {
  double time = 0;  ///< seconds since the first start
  int rank = 0;
};

/// Seconds; without a machine FLOPs of steps (Durations).
struct Simulation {
  double seconds = 0;  ///< from the first start to the end of the last clip
  double load = 0;     ///< of the rank that loads longest
  double begin = 0;    ///< when the first clip is begun to be denoised
  double idle = 0;     ///< mean share of the time from then on in which a replica waits
  std::vector<SimulatedFailure> failures;
  /// Whether the steps of a batch are one span, as there would be too many otherwise.
  bool whole_batches = false;
  /// For each rank in the order of their starts; nanoseconds since the first start. A span that a
  /// failure interrupts ends there.
  std::vector<std::vector<trace::Span>> spans;
};

/// Plays a job that makes clips, with the queues, order and saving of `run` (plan/queues.hpp):
/// every rank loads and encodes, each replica takes the next batch when it is free, the ranks of
/// `tail` take over the last ones, and in split mode clips pass from stage to stage. The same
/// failures each time: with exponential intervals (no wear, no warm-up), ranks by chance. Without
/// time: messages between stages, hashing of weights, steps that sample.cache leaves out.
///
/// layout: in place of that of `planned`. batches: those that are to be made, in any order.
/// most_spans: about so many at most; 0: none. Error(unavailable) if failures are so frequent that
/// the job does not end. Time is linear in batches and spans.
Simulation simulate(const JobPlan& planned, const JobLayout& layout,
                    const std::vector<BatchOutline>& batches,
                    const SimulatedFailures& failures = {}, std::int64_t max_spans = 0);

/// The batches in the order in which they are made: the longest first if there are several
/// replicas, otherwise as they are. Graham's list scheduling (R. L. Graham, 1969): its end is at
/// most 4/3 of the earliest possible one on equal replicas.
std::vector<BatchOutline> in_order(const JobPlan& planned, const JobLayout& layout,
                                   std::vector<BatchOutline> batches);

/// As `simulated` of plan simulate --json. undisturbed: seconds of the same job without failures.
nlohmann::json describe(const Simulation& simulation, double undisturbed);

}  // namespace reelmesh
