#include "plan/plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace reelmesh {
namespace {

int at_least_one(const std::optional<int>& value) { return value.value_or(1); }

std::vector<RankRange> replicas_of(int first, int count, int size) {
  std::vector<RankRange> replicas;
  for (int i = 0; i < count; ++i) replicas.push_back({first + i * size, size});
  return replicas;
}

void split(Plan& plan, const ParallelRequest& request) {
  require(plan.ranks >= 3, Status::unavailable,
          "parallel.mode = split needs at least 3 ranks, for text, denoising and decoding; the job "
          "has {}",
          plan.ranks);
  const int text = at_least_one(request.text), decode = at_least_one(request.decode);
  const int rest = plan.ranks - text - decode;
  const int replicas = at_least_one(request.replicas);
  const std::int64_t size = group_size(plan.mesh, std::max(1, rest / replicas));
  require(text + replicas * size + decode == plan.ranks, Status::unavailable,
          "parallel.*: {} text + {} replicas of {} denoising + {} decode ranks are {}, and the job "
          "has {} ranks",
          text, replicas, size, decode, text + replicas * size + decode, plan.ranks);
  plan.text = {0, text};
  plan.denoise = replicas_of(text, replicas, static_cast<int>(size));
  plan.decode = {plan.ranks - decode, decode};
}

void phased(Plan& plan, const ParallelRequest& request) {
  const int replicas = at_least_one(request.replicas);
  const std::int64_t size = group_size(plan.mesh, std::max(1, plan.ranks / replicas));
  const int text = request.text.value_or(plan.ranks), decode = request.decode.value_or(plan.ranks);
  const std::int64_t most = std::max<std::int64_t>({text, replicas * size, decode});
  require(most <= plan.ranks, Status::unavailable,
          "parallel.*: {} text, {} replicas of {} denoising and {} decode ranks in turn need {} "
          "ranks, and the job has {}",
          text, replicas, size, decode, most, plan.ranks);
  plan.text = {0, text};
  plan.denoise = replicas_of(0, replicas, static_cast<int>(size));
  plan.decode = {0, decode};
}

}  // namespace

std::string Plan::role(int rank) const {
  std::string role;
  const auto add = [&](bool has, const char* name) {
    if (!has) return;
    if (!role.empty()) role += '+';
    role += name;
  };
  add(text.contains(rank), "text");
  add(std::any_of(denoise.begin(), denoise.end(),
                  [&](const RankRange& range) { return range.contains(rank); }),
      "denoise");
  add(decode.contains(rank), "decode");
  return role.empty() ? "idle" : role;
}

std::vector<double> Plan::speeds_of(const RankRange& range) const {
  if (speeds.empty()) return {};
  return {speeds.begin() + range.first, speeds.begin() + range.first + range.count};
}

Plan make_plan(const ParallelRequest& request, const TextEncoderSizes& text_encoder, int ranks,
               const std::string& device_map_file) {
  Plan plan;
  plan.ranks = ranks;
  plan.mesh = {request.cfg, request.ulysses, request.ring};
  plan.shard = request.shard;
  plan.mode = request.mode;
  if (plan.mode == Mode::automatic) {
    // Ranks that do all stages in turn are never idle; who names text or decode ranks that leave
    // some for denoising wants them apart.
    const bool named = request.text.has_value() || request.decode.has_value();
    const bool apart = at_least_one(request.text) + at_least_one(request.decode) < ranks;
    plan.mode = named && apart ? Mode::split : Mode::phased;
  }
  if (plan.mode == Mode::split) {
    split(plan, request);
  } else {
    phased(plan, request);
  }
  if (request.device_map == "auto") {
    std::vector<std::int64_t> rooms = text_encoder.rooms;
    if (!rooms.empty()) {
      rooms = {rooms.begin() + plan.text.first, rooms.begin() + plan.text.first + plan.text.count};
    }
    plan.device_map = balanced_device_map(text_encoder.layers, text_encoder.layer_bytes,
                                          text_encoder.embedding_bytes, plan.text.count, rooms);
  } else if (!device_map_file.empty()) {
    plan.device_map = device_map_from_json(device_map_file, request.device_map, text_encoder.layers,
                                           plan.text.count);
  } else {
    plan.device_map = parse_device_map(request.device_map, text_encoder.layers, plan.text.count);
  }
  return plan;
}

DenoiseLayout denoise_layout(const Plan& plan, const DenoiseSizes& sizes, std::size_t replica) {
  const RankRange& range = plan.denoise.at(replica);
  return denoise_layout(plan.mesh, plan.shard, sizes, range.count, plan.speeds_of(range));
}

std::string describe(const Plan& plan) {
  const auto ranks = [](const RankRange& range) {
    return range.count == 1
               ? fmt::format("rank {}", range.first)
               : fmt::format("ranks {}-{}", range.first, range.first + range.count - 1);
  };
  std::string text = fmt::format(
      "{} rank{}, {}\n", plan.ranks, plan.ranks == 1 ? "" : "s",
      plan.mode == Mode::split ? "split: stages side by side" : "phased: stages in turn");
  text += fmt::format("text: {}, layers {}\n", ranks(plan.text), to_string(plan.device_map));
  for (std::size_t i = 0; i < plan.denoise.size(); ++i) {
    text +=
        fmt::format("denoise{}: {}\n", plan.denoise.size() > 1 ? fmt::format(" replica {}", i) : "",
                    ranks(plan.denoise[i]));
  }
  text += fmt::format("decode: {}\n", ranks(plan.decode));
  return text;
}

std::string describe(const Plan& plan, const DenoiseSizes& sizes) {
  std::string text = describe(plan);
  const DenoiseLayout layout = denoise_layout(plan, sizes, 0);
  text += fmt::format("mesh: {} ({})\n", to_string(layout.mesh), layout.why);
  text += fmt::format("tokens [frame, row, column] {}\n", to_string(layout.grid));
  text += fmt::format("text tokens {}\n", to_string(layout.text));
  if (!plan.speeds.empty()) text += fmt::format("speeds: {}\n", fmt::join(plan.speeds, ", "));
  return text;
}

}  // namespace reelmesh
