#include "pipeline/planning.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "models/t5/memory.hpp"
#include "ops/onednn.hpp"
#include "weights/json.hpp"

namespace reelmesh::pipeline {

Precision precision_of(const Job& job, const Conditions& conditions) {
  if (conditions.on_gpu) return {job.dtype, job.dtype, true};
  return {job.dtype, job.dtype == DType::float32 ? DType::float32 : conditions.products};
}

std::vector<double> speeds_of_ranks(const Job& job, int ranks) {
  require(job.speeds.empty() || job.speeds.size() == static_cast<std::size_t>(ranks),
          Status::unavailable, "device.speeds: {} speeds are given, and the job has {} ranks",
          job.speeds.size(), ranks);
  return job.speeds;
}

namespace {

// Token ids of the longest text among the clips.
std::int64_t longest_text(const std::vector<Clip>& clips) {
  std::size_t longest = 1;
  for (const Clip& clip : clips) {
    for (const auto& ids : clip.branches) longest = std::max(longest, ids.size());
  }
  return static_cast<std::int64_t>(longest);
}

TextEncoderSizes text_sizes(const Job& job, const Family& model, const std::vector<Clip>& clips,
                            const Conditions& conditions) {
  const T5Config& config = model.text_encoder();
  const Precision precision = precision_of(job, conditions);
  const std::int64_t layer = config.num_layers > 1 ? 1 : 0;
  TextEncoderSizes sizes{config.num_layers,
                         t5_weight_bytes(config, {layer, layer + 1, false, false}, precision),
                         t5_weight_bytes(config, {0, 0, true, false}, precision),
                         {}};
  StageMemory working{0, t5_working_bytes(config, longest_text(clips), precision)};
  for (const std::int64_t limit : limits_of_ranks(job.memory_limits, conditions.ranks)) {
    sizes.rooms.push_back(limit - conditions.program() -
                          conditions.threads * thread_bytes(t5_tensors(config), precision) -
                          working.all());
  }
  return sizes;
}

// Whether two clips cost the same, so that one of them is enough to look at.
bool alike(const Clip& a, const Clip& b) {
  return a.size.height == b.size.height && a.size.width == b.size.width &&
         a.size.frames == b.size.frames && a.branches.size() == b.branches.size() &&
         a.branches.front().size() == b.branches.front().size();
}

void keep_larger(StageMemory& mine, const StageMemory& other) {
  mine.weights = std::max(mine.weights, other.weights);
  mine.working = std::max(mine.working, other.working);
  mine.of_a_thread = std::max(mine.of_a_thread, other.of_a_thread);
}

}  // namespace

MemoryPlan plan_memory(const Job& job, const Family& model, const std::vector<Clip>& clips,
                       const Plan& plan, const Conditions& conditions) {
  const Precision precision = precision_of(job, conditions);
  MemoryPlan memory;
  memory.program = conditions.program();
  memory.threads = conditions.threads;
  memory.limits = limits_of_ranks(job.memory_limits, plan.ranks);
  const std::vector<StageMemory> text =
      text_memory(plan, model.text_encoder(), longest_text(clips), precision);
  memory.ranks.resize(text.size());
  std::vector<const Clip*> unlike;
  std::int64_t waiting = 0;
  for (const Clip& clip : clips) {
    const bool known = std::any_of(unlike.begin(), unlike.end(),
                                   [&](const Clip* other) { return alike(*other, clip); });
    if (!known) unlike.push_back(&clip);
    std::int64_t tokens = 0;
    for (const auto& ids : clip.branches) tokens += static_cast<std::int64_t>(ids.size());
    const std::int64_t bytes = tokens * model.text_encoder().d_model * precision.size();
    // In split mode there is one clip at a time.
    waiting = plan.mode == Mode::split ? std::max(waiting, bytes) : waiting + bytes;
  }
  for (std::size_t r = 0; r < text.size(); ++r) {
    memory.ranks[r].text = text[r];
    // CogVideoX's ranks have parts of it: more than enough. With GPUs it waits on the host.
    memory.ranks[r].queue = conditions.on_gpu ? 0 : waiting;
  }
  const int last = plan.text.first + plan.device_map.final_norm_rank;
  memory.ranks.at(static_cast<std::size_t>(last)).text.working += conditions.on_gpu ? 0 : waiting;
  const auto together = std::min<std::int64_t>(job.batch, std::ssize(clips));
  for (const Clip* clip : unlike) {
    const ClipCost cost = model.cost(plan, *clip, together, precision);
    for (std::size_t r = 0; r < text.size(); ++r) {
      keep_larger(memory.ranks[r].denoise, cost.ranks[r].denoise);
      keep_larger(memory.ranks[r].decode, cost.ranks[r].decode);
      if (!job.keep_video) memory.ranks[r].decode.working = 0;  // it is loaded, and rests
    }
  }
  take_turns(memory);
  return memory;
}

Plan plan_roles(const Job& job, const Family& model, const std::vector<Clip>& clips,
                const Conditions& conditions) {
  const std::string& map = job.parallel.device_map;
  const std::string file = map.ends_with(".json") ? read_text(map, 1 << 24) : std::string();
  const TextEncoderSizes sizes = text_sizes(job, model, clips, conditions);
  ParallelRequest request = job.parallel;
  Plan plan = make_plan(request, sizes, conditions.ranks, file);
  if (plan.mode != Mode::split || job.memory_limits.empty()) return plan;
  // A rank more for the stage that does not fit, as long as there are some to denoise.
  for (Plan wider = plan; wider.text.count + wider.decode.count < conditions.ranks;) {
    const MemoryPlan memory = plan_memory(job, model, clips, wider, conditions);
    if (memory.fits()) return wider;
    const auto over = [&](const RankRange& range) {
      for (int r = range.first; r < range.first + range.count; ++r) {
        if (!memory.fits(r)) return true;
      }
      return false;
    };
    if (over(wider.text) && !job.parallel.text) {
      request.text = wider.text.count + 1;
    } else if (over(wider.decode) && !job.parallel.decode) {
      request.decode = wider.decode.count + 1;
    } else {
      break;
    }
    try {
      wider = make_plan(request, sizes, conditions.ranks, file);
    } catch (const Error&) {
      break;  // the ranks that are left do not make the groups that were asked for
    }
  }
  return plan;
}

void require_fit(const Job& job, const Family& model, const std::vector<Clip>& clips,
                 const MemoryPlan& memory, const Conditions& conditions) {
  const std::string over = what_is_over(memory);
  if (over.empty()) return;
  const auto fits = [&](const Job& other, const Conditions& there) {
    try {
      const Plan plan = plan_roles(other, model, clips, there);
      return plan_memory(other, model, clips, plan, there).fits();
    } catch (const Error&) {
      return false;
    }
  };
  std::string help;
  const auto add = [&](const std::string& what) { help += (help.empty() ? "" : " or ") + what; };
  // Ranks of the same kind; where they differ, nobody knows what more of them would be like.
  constexpr int most = 64;
  for (int ranks = conditions.ranks + 1; job.memory_limits.size() == 1 && ranks <= most; ++ranks) {
    Conditions there = conditions;
    there.ranks = ranks;
    if (!fits(job, there)) continue;
    add(fmt::format("{} ranks", ranks));
    break;
  }
  if (job.dtype == DType::float32) {
    Job half = job;
    half.dtype = DType::bfloat16;
    Conditions there = conditions;
    there.products = ops::compute_dtype(half.dtype);
    if (fits(half, there)) add("numerics.dtype = bfloat16");
  }
  std::int64_t needed = 0;
  for (int r = 0; r < static_cast<int>(memory.ranks.size()); ++r) {
    if (!memory.fits(r)) needed = std::max(needed, memory.peak(r));
  }
  // Rounded, it is still enough.
  add(fmt::format("a limit of {}", format_bytes(1.005 * static_cast<double>(needed))));
  fail(Status::unavailable, "{}; what would help: {}", over, help);
}

}  // namespace reelmesh::pipeline
