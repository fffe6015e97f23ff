#include "plan/device_map.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/number.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

constexpr const char* option = "parallel.device-map";
constexpr std::string_view host_suffix = "@host";

void check_rank(std::int64_t rank, int ranks) {
  require(rank >= 0 && rank < ranks, Status::unavailable,
          "{}: found rank {}, expected 0 to {}, the ranks of the text group", option, rank,
          ranks - 1);
}

// Fills ranks one after the other with at most limits[rank] bytes each. → the number of layers on
// each rank; empty if not all layers fit.
std::vector<std::int64_t> fill(std::int64_t layers, std::int64_t layer_bytes,
                               const std::vector<std::int64_t>& limits) {
  std::vector<std::int64_t> taken;
  for (const std::int64_t room : limits) {
    taken.push_back(std::clamp<std::int64_t>(room / layer_bytes, 0, layers));
    layers -= taken.back();
  }
  return layers == 0 ? taken : std::vector<std::int64_t>{};
}

// fill() with limits = part × available for the smallest part that suffices, found by bisection.
// available: bytes available on each rank, not all 0.
std::vector<std::int64_t> fill_balanced(std::int64_t layers, std::int64_t layer_bytes,
                                        const std::vector<std::int64_t>& available) {
  const auto filled = [&](double part) {
    std::vector<std::int64_t> limits;
    for (const std::int64_t room : available) {
      limits.push_back(to_integer(part * static_cast<double>(room)));
    }
    return fill(layers, layer_bytes, limits);
  };
  const double whole = static_cast<double>(layers * layer_bytes + 1);
  double low = 0, high = whole / static_cast<double>(*std::ranges::max_element(available));
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (filled(middle).empty() ? low : high) = middle;
  }
  return filled(high);
}

}  // namespace

std::vector<DeviceMap::Stage> DeviceMap::stages() const {
  const auto layers = static_cast<std::int64_t>(layer_rank.size());
  std::vector<Stage> stages{{embedding_rank, 0, 0, true, false}};
  for (std::int64_t i = 0; i < layers; ++i) {
    const int rank = layer_rank[static_cast<std::size_t>(i)];
    Stage& last = stages.back();
    if (last.first == last.last && last.rank == rank) last.on_host = host(i);
    if (last.rank != rank || last.on_host != host(i)) {
      stages.push_back({rank, i, i, false, false, host(i)});
    }
    stages.back().last = i + 1;
  }
  if (stages.back().rank != final_norm_rank) {
    stages.push_back({final_norm_rank, layers, layers, false, false});
  }
  stages.back().final_norm = true;
  return stages;
}

DeviceMap balanced_device_map(std::int64_t layers, std::int64_t layer_bytes, int ranks,
                              const std::vector<std::int64_t>& available) {
  std::vector<std::int64_t> share(static_cast<std::size_t>(ranks), layers * layer_bytes);
  if (std::ranges::any_of(available, [](std::int64_t room) { return room > 0; })) {
    share = available;
    for (std::int64_t& room : share) room = std::max<std::int64_t>(0, room);
  }
  const auto taken = fill_balanced(layers, layer_bytes, share);
  DeviceMap map;
  for (int r = 0; r < ranks; ++r) {
    map.layer_rank.insert(map.layer_rank.end(),
                          static_cast<std::size_t>(taken[static_cast<std::size_t>(r)]), r);
  }
  map.embedding_rank = map.layer_rank.front();
  map.final_norm_rank = map.layer_rank.back();
  return map;
}

DeviceMap parse_device_map(std::string_view ranges, std::int64_t layers, int ranks) {
  const std::string whole(ranges);
  const auto number = [&](std::string_view text) {
    const auto value = read_number<std::int64_t>(text);
    require(value && *value >= 0, Status::usage,
            "{}: found '{}', expected auto, ranges (layers:rank) such as 0-11:0,12-23:1, or a "
            ".json file",
            option, whole);
    return *value;
  };
  DeviceMap map;
  map.layer_rank.assign(static_cast<std::size_t>(layers), -1);
  map.on_host.assign(static_cast<std::size_t>(layers), false);
  while (!ranges.empty()) {
    std::string_view part = ranges.substr(0, ranges.find(','));
    ranges.remove_prefix(std::min(ranges.size(), part.size() + 1));
    const bool host = part.ends_with(host_suffix);
    if (host) part.remove_suffix(host_suffix.size());
    const std::size_t colon = part.find(':');
    const std::string_view span = part.substr(0, colon);
    const std::size_t dash = span.find('-');
    const std::int64_t first = number(span.substr(0, dash));
    const std::int64_t last =
        dash == std::string_view::npos ? first : number(span.substr(dash + 1));
    const std::int64_t rank =
        number(colon == std::string_view::npos ? std::string_view() : part.substr(colon + 1));
    check_rank(rank, ranks);
    require(first <= last && last < layers, Status::usage,
            "{}: found layers {}-{}, expected 0 to {}", option, first, last, layers - 1);
    for (std::int64_t i = first; i <= last; ++i) {
      int& holder = map.layer_rank[static_cast<std::size_t>(i)];
      require(holder < 0, Status::usage, "{}: found layer {} on ranks {} and {}, expected one rank",
              option, i, holder, rank);
      holder = static_cast<int>(rank);
      map.on_host[static_cast<std::size_t>(i)] = host;
    }
  }
  for (std::int64_t i = 0; i < layers; ++i) {
    require(map.layer_rank[static_cast<std::size_t>(i)] >= 0, Status::usage,
            "{}: found no rank in '{}' for layer {}", option, whole, i);
  }
  map.embedding_rank = map.layer_rank.front();
  map.final_norm_rank = map.layer_rank.back();
  return map;
}

DeviceMap device_map_from_json(const std::string& text, const std::string& source,
                               std::int64_t layers, int ranks) {
  const nlohmann::json json = parse_json(text, source);
  require(json.is_object(), Status::data, "{}: expected a JSON object of module -> rank", source);
  // The rank of a module; nullopt if it is on the host.
  const auto module_rank = [&](const std::string& module) -> std::optional<int> {
    // The module itself, or the innermost one around it; the whole model is "".
    std::string name = module;
    auto value = json.find(name);
    while (value == json.end() && !name.empty()) {
      const std::size_t dot = name.rfind('.');
      name.resize(dot == std::string::npos ? 0 : dot);
      value = json.find(name);
    }
    require(value != json.end(), Status::data, "{}: no entry for {}", source, module);
    if (*value == "cpu" || *value == "disk") return std::nullopt;
    require(value->is_number_unsigned(), Status::data,
            "{}: '{}' is {}, expected a rank, \"cpu\" or \"disk\"", source, name,
            printable(value->dump()));
    const auto rank = value->get<std::uint64_t>();
    check_rank(rank > 1000000 ? -1 : static_cast<std::int64_t>(rank), ranks);
    return static_cast<int>(rank);
  };
  // The embedding is tied: transformers calls it "shared" and "encoder.embed_tokens".
  const std::optional<int> embedding = module_rank(
      json.contains("encoder.embed_tokens") || !json.contains("shared") ? "encoder.embed_tokens"
                                                                        : "shared");
  std::vector<std::optional<int>> found;
  for (std::int64_t i = 0; i < layers; ++i) {
    found.push_back(module_rank("encoder.block." + std::to_string(i)));
  }
  // What is on the host before any layer that is not is computed by the rank of that layer.
  const auto first = std::ranges::find_if(found, [](const auto& rank) { return rank.has_value(); });
  DeviceMap map;
  map.embedding_rank = embedding.value_or(first == found.end() ? 0 : **first);
  int rank = map.embedding_rank;
  for (const std::optional<int>& own : found) {
    rank = own.value_or(rank);
    map.layer_rank.push_back(rank);
    map.on_host.push_back(!own);
  }
  map.final_norm_rank = module_rank("encoder.final_layer_norm").value_or(rank);
  return map;
}

std::string device_map_to_json(const DeviceMap& map) {
  nlohmann::ordered_json json{{"shared", map.embedding_rank},
                              {"encoder.embed_tokens", map.embedding_rank}};
  for (std::size_t i = 0; i < map.layer_rank.size(); ++i) {
    auto& entry = json[fmt::format("encoder.block.{}", i)];
    entry = map.layer_rank[i];
    if (map.host(static_cast<std::int64_t>(i))) entry = "cpu";
  }
  json["encoder.final_layer_norm"] = map.final_norm_rank;
  return json.dump(1);
}

std::string to_string(const DeviceMap& map) {
  std::string text;
  for (const DeviceMap::Stage& stage : map.stages()) {
    if (stage.first == stage.last) continue;
    text += fmt::format("{}{}-{}:{}{}", text.empty() ? "" : ",", stage.first, stage.last - 1,
                        stage.rank, stage.on_host ? host_suffix : "");
  }
  return text;
}

}  // namespace reelmesh
