#pragma once
// What `run` and `plan` say first, and job.h5 keeps.
#include <nlohmann/json_fwd.hpp>

#include "forecast/prediction.hpp"
#include "plan/describe.hpp"

namespace reelmesh {

/// "cfg 2 x ring 3", without axes of one rank; "whole" for one rank.
std::string shown(const Mesh& mesh);

/// How boxes cut tokens or pixels [frame, row, column]: "frames 2 x rows 3", "whole", or the number
/// of boxes where they are no grid.
std::string shown_cut(const Layout& layout);

/// The description of a job's plan: what `plan --json` prints, and job.h5 keeps as plan_json. Of
/// the plan with clips like the first one, and with a table of all stages, the division of the
/// batches over the replicas, and the text that people read. batches: those that are to be made;
/// none in a training. prediction: of predict() with the same arguments.
nlohmann::json describe(const JobPlan& planned, const std::vector<BatchOutline>& batches,
                        const std::optional<Prediction>& prediction = {});

/// "4 clips of 9x64x64 (frames x height x width), 20 steps"; names the number of formats where
/// clips differ. clips: those that are to be made, not empty.
std::string clips_text(const std::vector<ClipOutline>& clips, const ClipKinds& kinds);

/// The same of a training on so many clips: "training on 20 clips of 49x480x720 (frames x height x
/// width), 4 in a step: LoRA of rank 64".
std::string training_text(const JobPlan& planned, std::int64_t clips);

}  // namespace reelmesh
