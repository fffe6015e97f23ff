#pragma once
// How long a job is predicted to take.
#include <nlohmann/json_fwd.hpp>

#include "forecast/plan_job.hpp"

namespace reelmesh {

/// Seconds of clips of one size.
struct SizePrediction {
  double encode = 0;  ///< of a text, on a rank that has layers of the text encoder (median)
  double input = 0;   ///< of the image or video that a clip begins from, to latents
  Elapsed step;       ///< of a batch, on the slowest rank of the first replica; or of a training
  double decode = 0;  ///< of a clip, on the slowest rank
};

struct Prediction {
  std::string machine;       ///< its name
  bool measured = false;     ///< whether the machine's times are
  double load = 0;           ///< seconds of loading of all parts
  double encode = 0;         ///< of all texts and inputs
  double make = 0;           ///< of all batches, or steps
  double job = 0;            ///< from the start of the program to its end
  double idle = 0;           ///< part of the ranks' time while clips are made in which they wait
  double low = 0, high = 0;  ///< between these the job is expected to be
  std::vector<SizePrediction> sizes;  ///< in the order of JobPlan::formats
};

/// The times of these batches, or of the steps of a training; none if the machine's are not known.
/// Not predicted: hashing of weights that were not hashed before, saving for a restart. Error(data)
/// as MachineTimes::operation, and naming a link that the job needs and the machine lacks.
std::optional<Prediction> predict(const JobPlan& planned, const std::vector<BatchOutline>& batches);

/// As `predicted` of plan --json.
nlohmann::json describe(const Prediction& prediction, const JobPlan& planned);

}  // namespace reelmesh
