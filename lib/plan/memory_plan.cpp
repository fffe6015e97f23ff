#include "plan/memory_plan.hpp"

#include <algorithm>
#include <limits>

#include "base/units.hpp"
#include "plan/roles.hpp"

namespace reelmesh {
namespace {

std::string size(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

const RankMemory& of(const MemoryPlan& memory, int rank) {
  return memory.ranks.at(static_cast<std::size_t>(rank));
}

// Bytes that a rank needs beyond its limit; 0 if it fits.
std::int64_t excess(const MemoryPlan& memory, int rank) {
  if (memory.fits(rank)) return 0;
  return memory.peak(rank) - memory.limits.at(static_cast<std::size_t>(rank));
}

// The rank with the largest excess; the first one of several.
int furthest_over(const MemoryPlan& memory) {
  int worst = 0;
  for (int rank = 1; rank < static_cast<int>(memory.ranks.size()); ++rank) {
    if (excess(memory, rank) > excess(memory, worst)) worst = rank;
  }
  return worst;
}

}  // namespace

std::int64_t MemoryPlan::text(int rank) const {
  const StageMemory& stage = of(*this, rank).text;
  return program + threads * stage.per_thread + stage.total();
}

std::int64_t MemoryPlan::encode(int rank) const {
  const RankMemory& r = of(*this, rank);
  if (!r.encode.used()) return 0;
  const std::int64_t per_thread = std::max(r.text.per_thread, r.encode.per_thread);
  return program + threads * per_thread + r.embeddings + r.encode.total() +
         (keeps_both(r) ? r.decode.weights : 0);
}

std::int64_t MemoryPlan::denoise(int rank) const {
  const RankMemory& r = of(*this, rank);
  const std::int64_t per_thread =
      std::max({r.text.per_thread, r.encode.per_thread, r.denoise.per_thread});
  return program + threads * per_thread + r.embeddings + r.denoise.total() +
         (offloads || unloads_decoder ? 0 : r.decode.weights);
}

std::int64_t MemoryPlan::decode(int rank) const {
  const RankMemory& r = of(*this, rank);
  const std::int64_t per_thread =
      std::max({r.text.per_thread, r.encode.per_thread, r.denoise.per_thread, r.decode.per_thread});
  const std::int64_t denoising = r.decodes_between_steps ? r.denoise.total() : r.denoise.weights;
  // Ranks of split mode that make clips do so when all inputs are encoded.
  const std::int64_t encoder = keeps_both(r) ? r.encode.weights : 0;
  return program + threads * per_thread + r.embeddings + r.decode.total() +
         std::max(offloads ? 0 : denoising, encoder);
}

std::int64_t MemoryPlan::peak(int rank) const {
  return std::max({text(rank), encode(rank), denoise(rank), decode(rank)});
}

bool MemoryPlan::fits(int rank) const {
  return limits.empty() || peak(rank) <= limits.at(static_cast<std::size_t>(rank));
}

bool MemoryPlan::fits() const {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!fits(static_cast<int>(r))) return false;
  }
  return true;
}

std::int64_t MemoryPlan::room() const {
  std::int64_t room = std::numeric_limits<std::int64_t>::max();
  for (std::size_t r = 0; r < limits.size(); ++r) {
    room = std::min(room, limits[r] - peak(static_cast<int>(r)));
  }
  return room;
}

MemoryPlan with_offloading(MemoryPlan memory) {
  const auto largest_excess = [](const MemoryPlan& plan) {
    return excess(plan, furthest_over(plan));
  };
  MemoryPlan best = memory;
  for (bool MemoryPlan::*choice : {&MemoryPlan::unloads_decoder, &MemoryPlan::offloads}) {
    if (largest_excess(best) == 0 || memory.decoder == WeightsChoice::replicated) break;
    MemoryPlan other = memory;
    other.*choice = true;
    if (largest_excess(other) < largest_excess(best)) best = std::move(other);
  }
  return best;
}

std::string describe_excess(const MemoryPlan& memory) {
  const int worst = furthest_over(memory);
  if (memory.fits(worst)) return {};
  const RankMemory& r = of(memory, worst);
  const std::int64_t peak = memory.peak(worst);
  const auto [doing, stage] = peak == memory.text(worst)     ? std::pair("encodes prompts", r.text)
                              : peak == memory.encode(worst) ? std::pair("encodes inputs", r.encode)
                              : peak == memory.denoise(worst) ? std::pair("denoises", r.denoise)
                                                              : std::pair("decodes", r.decode);
  return fmt::format(
      "device.memory-limit: rank {} needs {} while it {} ({} of weights and {} of working memory), "
      "its limit is {}",
      worst, size(peak), doing, size(stage.weights), size(peak - stage.weights),
      size(memory.limits[static_cast<std::size_t>(worst)]));
}

std::string describe(const MemoryPlan& memory) {
  std::string text;
  const auto line = [&](int rank) {
    const RankMemory& r = of(memory, rank);
    std::string parts;
    const auto add = [&](const char* name, const StageMemory& stage, std::int64_t bytes) {
      if (!stage.used()) return;
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, size(bytes));
    };
    add("text", r.text, memory.text(rank));
    add("input", r.encode, memory.encode(rank));
    add("denoise", r.denoise, memory.denoise(rank));
    add("decode", r.decode, memory.decode(rank));
    return fmt::format(
        "{}{} ({})", size(memory.peak(rank)),
        memory.limits.empty()
            ? ""
            : fmt::format(" of {}", size(memory.limits[static_cast<std::size_t>(rank)])),
        parts.empty() ? "idle" : parts);
  };
  // Equal lines of consecutive ranks are merged; at most 16 lines, to keep the text readable.
  constexpr int max_lines = 16;
  const int ranks = static_cast<int>(memory.ranks.size());
  std::string shown = ranks > 0 ? line(0) : std::string();
  for (int first = 0, last = 0, lines = 0; first < ranks; first = last, ++lines) {
    if (lines == max_lines) {
      text += fmt::format("memory: {} (plan --json has each)\n",
                          to_string(RankRange{first, ranks - first}));
      break;
    }
    std::string next;
    for (last = first + 1; last < ranks && (next = line(last)) == shown;) ++last;
    text += fmt::format("memory: {} {}\n", to_string(RankRange{first, last - first}),
                        std::exchange(shown, next));
  }
  std::int64_t decoder = 0;
  bool leaves = false;
  for (const RankMemory& r : memory.ranks) {
    decoder = std::max(decoder, r.decode.weights);
    leaves = leaves || (r.text.weights > 0 && r.denoise.weights > 0);
  }
  text += fmt::format(
      "memory: weights of the decoder {}, whole on each rank that decodes{}{}\n", size(decoder),
      leaves ? "; the text encoder is unloaded before transformer and decoder are loaded" : "",
      memory.offloads ? "; transformer and decoder are offloaded: one at a time is loaded in each "
                        "round of clips, to keep the limit"
      : memory.unloads_decoder ? "; loaded in each round of clips, and unloaded after it"
                               : "");
  return text;
}

}  // namespace reelmesh
