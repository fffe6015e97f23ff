#include "plan/roles.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"

namespace reelmesh {
namespace {

int at_least_one(const std::optional<int>& value) { return value.value_or(1); }

std::vector<RankRange> replica_ranges(int first, int count, std::int64_t size) {
  std::vector<RankRange> replicas;
  for (int i = 0; i < count; ++i) {
    replicas.push_back({first + i * static_cast<int>(size), static_cast<int>(size)});
  }
  return replicas;
}

Roles split(const ParallelRequest& request, int ranks) {
  require(ranks >= 3, Status::unavailable,
          "parallel.mode = split needs at least 3 ranks, for text, denoising and decoding; the job "
          "has {}",
          ranks);
  const int text = at_least_one(request.text), decode = at_least_one(request.decode);
  const int replicas = at_least_one(request.replicas);
  const std::int64_t size = group_size({request.cfg, request.ulysses, request.ring},
                                       std::max(1, (ranks - text - decode) / replicas));
  const std::int64_t all = text + replicas * size + decode;
  require(all == ranks, Status::unavailable,
          "parallel.*: {} text + {} replicas of {} denoising + {} decode ranks are {} ranks, "
          "expected {}, the ranks of the job",
          text, replicas, size, decode, all, ranks);
  return {Mode::split, {0, text}, replica_ranges(text, replicas, size), {{ranks - decode, decode}}};
}

Roles phased(const ParallelRequest& request, int ranks) {
  const int replicas = at_least_one(request.replicas);
  const std::int64_t size = group_size({request.cfg, request.ulysses, request.ring},
                                       request.group.value_or(std::max(1, ranks / replicas)));
  const int text = request.text.value_or(ranks);
  const int decode = request.decode.value_or(replicas == 1 ? ranks : static_cast<int>(size));
  const std::int64_t decoding = std::int64_t{1} * request.encoders.value_or(1) * decode;
  const std::int64_t needed = std::max<std::int64_t>({text, replicas * size, decoding});
  require(needed <= ranks, Status::unavailable,
          "parallel.*: {} text, {} replicas of {} denoising and {} decode ranks need {} ranks, the "
          "job has {}",
          text, replicas, size, decoding, needed, ranks);
  std::vector<RankRange> denoise = replica_ranges(0, replicas, size);
  if (request.encoders) {
    std::vector<RankRange> encoders = replica_ranges(0, *request.encoders, decode);
    return {Mode::phased, {0, text}, std::move(denoise), std::move(encoders)};
  }
  std::vector<RankRange> decoders = denoise;
  for (RankRange& range : decoders) {
    range.count = replicas == 1 ? decode : std::min(decode, range.count);
  }
  return {Mode::phased, {0, text}, std::move(denoise), std::move(decoders)};
}

}  // namespace

std::string to_string(const RankRange& ranks) {
  return ranks.count == 1 ? fmt::format("rank {}", ranks.first)
                          : fmt::format("ranks {}-{}", ranks.first, ranks.first + ranks.count - 1);
}

std::int64_t MeshRequest::product() const {
  return std::int64_t{1} * cfg.value_or(1) * ulysses.value_or(1) * ring.value_or(1);
}

std::int64_t group_size(const MeshRequest& request, int available) {
  const std::int64_t given = request.product();
  if (request.cfg && request.ulysses && request.ring) return given;
  return std::max(given, available / given * given);
}

std::string Roles::of(int rank) const {
  std::string role;
  const auto add = [&](const std::vector<RankRange>& groups, const char* name) {
    if (std::ranges::any_of(groups, [&](const RankRange& r) { return r.contains(rank); })) {
      role += fmt::format("{}{}", role.empty() ? "" : "+", name);
    }
  };
  add({text}, "text");
  add(denoise, "denoise");
  add(decode, "decode");
  return role.empty() ? "idle" : role;
}

Roles assign_roles(const ParallelRequest& request, int ranks) {
  Mode mode = request.mode;
  if (mode == Mode::automatic) {
    // Phased by default: no rank waits for another stage. If the user gives text or decode ranks
    // such that some are left for denoising, each stage gets its own ranks (split).
    const bool named = request.text.has_value() || request.decode.has_value();
    const bool apart = at_least_one(request.text) + at_least_one(request.decode) < ranks;
    mode = named && apart ? Mode::split : Mode::phased;
  }
  return mode == Mode::split ? split(request, ranks) : phased(request, ranks);
}

std::string idle_text(const Roles& roles, int ranks) {
  std::vector<std::string> runs;
  int idle = 0;
  for (int first = 0, end = 0; first < ranks; first = std::max(end, first + 1)) {
    for (end = first; end < ranks && roles.of(end) == "idle";) ++end;
    if (end == first) continue;
    idle += end - first;
    runs.push_back(end - first == 1 ? std::to_string(first) : fmt::format("{}-{}", first, end - 1));
  }
  if (idle == 0) return {};
  const std::string last = runs.back();
  runs.pop_back();
  return fmt::format("{} {}{}{} {} nothing to do in this layout", idle == 1 ? "rank" : "ranks",
                     fmt::join(runs, ", "), runs.empty() ? "" : " and ", last,
                     idle == 1 ? "has" : "have");
}

}  // namespace reelmesh
