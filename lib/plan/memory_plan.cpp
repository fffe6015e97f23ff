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
  const RankMemory& r = of(*this, rank);
  return program + threads * r.text.per_thread + r.text_connections + r.text.total();
}

std::int64_t MemoryPlan::encode(int rank) const {
  const RankMemory& r = of(*this, rank);
  if (!r.encode.used()) return 0;
  const std::int64_t per_thread = std::max(r.text.per_thread, r.encode.per_thread);
  return program + threads * per_thread + r.connections + r.embeddings + r.encode.total() +
         (keeps_both(r) ? r.decode.weights : 0);
}

std::int64_t MemoryPlan::denoise(int rank) const {
  const RankMemory& r = of(*this, rank);
  const std::int64_t per_thread =
      std::max({r.text.per_thread, r.encode.per_thread, r.denoise.per_thread});
  return program + threads * per_thread + r.connections + r.embeddings + r.denoise.total() +
         (offloads || unloads_decoder ? 0 : r.decode.weights);
}

std::int64_t MemoryPlan::decode(int rank) const {
  const RankMemory& r = of(*this, rank);
  const std::int64_t per_thread =
      std::max({r.text.per_thread, r.encode.per_thread, r.denoise.per_thread, r.decode.per_thread});
  const std::int64_t encoder = keeps_both(r) ? r.encode.weights : 0;
  return program + threads * per_thread + r.connections + r.embeddings + r.decode.total() +
         std::max(offloads ? 0 : r.denoise.weights, encoder);
}

std::int64_t MemoryPlan::peak(int rank) const {
  return std::max({text(rank), encode(rank), denoise(rank), decode(rank)});
}

std::int64_t MemoryPlan::host_peak(int rank) const {
  if (!on_gpu()) return peak(rank);
  const RankMemory& r = of(*this, rank);
  const std::int64_t transformer = r.denoise.host + r.weights_on_host;
  const std::int64_t decoder = r.decode.host + (offloads ? 0 : r.weights_on_host);
  const std::int64_t working = std::max({r.encode.host, transformer, decoder});
  return host_program + std::max(r.text.host + r.text_on_host, r.embeddings_on_host + working);
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

MemoryPlan with(const Offloading& offloading, MemoryPlan memory) {
  const bool unloads_decoder = memory.unloads_decoder || offloading.unloads_decoder;
  static_cast<Offloading&>(memory) = offloading;
  memory.unloads_decoder = unloads_decoder;
  if (!memory.experts_in_turn) return memory;
  for (RankMemory& rank : memory.ranks) rank.denoise = rank.denoise_in_turn;
  return memory;
}

MemoryPlan with_offloading(const MemoryPlan& memory) {
  const auto largest_excess = [](const MemoryPlan& plan) {
    return excess(plan, furthest_over(plan));
  };
  const bool has_experts = std::ranges::any_of(
      memory.ranks, [](const RankMemory& rank) { return rank.denoise_in_turn.used(); });
  MemoryPlan best = memory;
  for (const bool in_turn : {false, true}) {
    for (const Offloading& choice : {Offloading{.experts_in_turn = in_turn},
                                     {.unloads_decoder = true, .experts_in_turn = in_turn},
                                     {.offloads = true, .experts_in_turn = in_turn}}) {
      if (largest_excess(best) == 0) return best;
      const bool moves_decoder = choice.unloads_decoder || choice.offloads;
      if (moves_decoder && memory.decoder == WeightsChoice::replicated) continue;
      if (in_turn && !has_experts) continue;
      MemoryPlan other = with(choice, memory);
      if (largest_excess(other) < largest_excess(best)) best = std::move(other);
    }
  }
  return best;
}

std::string excess_text(const MemoryPlan& memory) {
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

}  // namespace reelmesh
