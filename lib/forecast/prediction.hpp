#pragma once
// How long a job is predicted to take.
#include <nlohmann/json_fwd.hpp>

#include "forecast/simulation.hpp"

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
  double load = 0;           ///< seconds of loading, on the rank that loads longest
  double encode = 0;         ///< from then on until the first clip is begun to be denoised
  double make = 0;           ///< from then on to the end of the last clip; of a training, all steps
  double job = 0;            ///< from the start of the program to its end
  double idle = 0;           ///< part of the time while clips are made in which a replica waits
  double low = 0, high = 0;  ///< between these the job is expected to be
  std::vector<SizePrediction> sizes;  ///< in the order of JobPlan::formats
};

/// What jobs have been within, of those in tests/bench/README.md; of published figures, a guess.
double stated_error(const MachineTimes& machine);

/// The times of these batches, or of the steps of a training; none if the machine's are not known:
/// what simulate() gives, without failures. Not predicted: hashing of weights that were not hashed
/// before. Error(data) naming a link that the job needs and the machine lacks.
std::optional<Prediction> predict(const JobPlan& planned, const std::vector<BatchOutline>& batches);

/// As `predicted` of plan --json.
nlohmann::json describe(const Prediction& prediction, const JobPlan& planned);

}  // namespace reelmesh
