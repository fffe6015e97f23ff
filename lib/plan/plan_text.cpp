#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/report.hpp"
#include "base/units.hpp"
#include "plan/describe.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

std::string bytes(const json& number) { return format_bytes(number.get<double>()); }

// "1 rank", "2 ranks"
std::string count(const json& number, const char* what) {
  const auto n = number.get<std::int64_t>();
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

RankRange range(const json& ranks) { return {ranks.at("first"), ranks.at("count")}; }

std::string box(const json& box) {
  if (box.is_null()) return to_string(Box{});
  return to_string(Box{box.at("offset").get<Shape>(), box.at("extent").get<Shape>()});
}

std::string layout(const json& layout) {
  std::vector<std::string> boxes;
  const json& all = layout.at("boxes");
  const json whole{{"offset", Shape(layout.at("shape").size())}, {"extent", layout.at("shape")}};
  const bool replicated =
      all.size() > 1 && std::ranges::all_of(all, [&](const json& one) { return one == whole; });
  if (replicated) boxes.emplace_back("whole on each rank");
  for (const json& one : all) {
    if (!replicated) boxes.push_back(box(one));
  }
  const std::int64_t more =
      replicated ? 0 : layout.at("ranks").get<std::int64_t>() - std::ssize(boxes);
  const auto axes = layout.at("axes").get<std::vector<std::string>>();
  return fmt::format("{}{}: {}{}\n",
                     axes.size() > 1 ? fmt::format("[{}] ", fmt::join(axes, ", ")) : "",
                     to_string(layout.at("shape").get<Shape>()), fmt::join(boxes, " "),
                     more > 0 ? fmt::format(" and {} more (plan --json has all)", more) : "");
}

// Of a training: steps take the place of denoising, and videos are encoded where others are
// decoded.
bool trains(const json& plan) { return plan.contains("training"); }

std::string headline(const json& plan) {
  std::string text = count(plan.at("ranks"), "rank");
  if (plan.contains("hosts")) text += fmt::format(" on {}", count(plan["hosts"], "host"));
  if (plan.contains("device")) {
    text += fmt::format(", {} with {} each", plan["device"].get<std::string>(),
                        count(plan.at("threads"), "thread"));
    const auto products = plan.at("products").get<std::string>();
    if (!products.empty()) text += fmt::format(", products in {}", products);
  }
  return text + (plan.at("mode") == "split" ? "; split: each stage has ranks of its own\n"
                                            : "; phased: all ranks do each stage in turn\n");
}

std::string stages(const json& plan) {
  const json& rows = plan.at("stages");
  const bool several = plan.at("formats") > 1;  // formats of clips have a column
  const bool limited = std::ranges::any_of(plan.at("by_rank"), [](const json& rank) {
    return !rank.at("memory").at("limit").is_null();
  });
  std::vector<std::string> header{"stage"};
  if (several) header.emplace_back("clips");
  for (const char* name : {"ranks", "divided by", "largest share", "largest memory"}) {
    header.emplace_back(name);
  }
  if (limited) header.emplace_back("limit");
  Table table(header, several ? 4 : 3);
  for (const json& row : rows) {
    std::vector<std::string> cells{row.at("stage")};
    if (several) cells.push_back(row.at("clips"));
    const RankRange ranks = range(row.at("ranks"));
    std::string numbers = ranks.count == 1
                              ? std::to_string(ranks.first)
                              : fmt::format("{}-{}", ranks.first, ranks.first + ranks.count - 1);
    if (row.at("groups") > 1) numbers += fmt::format(" ({} groups)", row["groups"].get<int>());
    cells.push_back(numbers);
    cells.push_back(row.at("divided_by"));
    const json& share = row.at("largest_share");
    const auto part = share.at("part").get<std::int64_t>(), of = share.at("of").get<std::int64_t>();
    const auto what = share.at("what").get<std::string>();
    cells.push_back(what == "pixels"
                        ? fmt::format("{:.3g} % of the pixels",
                                      100.0 * static_cast<double>(part) / static_cast<double>(of))
                        : fmt::format("{} of {} {}", part, of, what));
    cells.push_back(row.at("largest_memory") > 0 ? bytes(row["largest_memory"]) : "-");
    const json& limits = row.at("limits");
    if (limited && limits.is_null()) {
      cells.emplace_back("-");
    } else if (limited) {
      const std::string min = bytes(limits.at(0)), max = bytes(limits.at(1));
      cells.push_back(limits[0] == limits[1] ? max : fmt::format("{} to {}", min, max));
    }
    table.row(std::move(cells));
  }
  std::string text = table.str();
  if (const json& more = plan.at("further_formats"); more > 0) {
    text += fmt::format("and {} more formats of clips\n", more.get<std::int64_t>());
  }
  return text;
}

std::string roles(const json& plan) {
  const RankRange text_ranks = range(plan.at("text"));
  std::string text = fmt::format("text: {}, layers {}\n", to_string(text_ranks),
                                 plan.at("device_map").get<std::string>());
  std::vector<RankRange> groups, decode;
  for (const json& group : plan.at("denoise")) groups.push_back(range(group));
  for (const json& group : plan.at("decode")) decode.push_back(range(group));
  const char* const doing = trains(plan) ? "train" : "denoise";
  const char* const videos = trains(plan) ? "encode" : "decode";
  const std::size_t replicas = groups.size();
  if (replicas == 1) {
    text += fmt::format("{}: {}\n", doing, to_string(groups.front()));
  } else if (replicas <= 16) {
    for (std::size_t i = 0; i < replicas; ++i) {
      text += fmt::format("{} replica {}: {}\n", doing, i, to_string(groups[i]));
    }
  } else {
    text += fmt::format("{}: {} replicas of {} ranks each, the first on {}\n", doing, replicas,
                        groups.front().count, to_string(groups.front()));
  }
  if (plan.at("mode") == "split" || decode.size() == 1) {
    text += fmt::format("{}: {}\n", videos, to_string(decode.front()));
  } else {
    text += fmt::format("{}: each replica, on {} of its ranks\n", videos, decode.front().count);
  }
  return text;
}

std::string weights(const json& plan) {
  const json& weights = plan.at("weights");
  const char* const when = trains(plan) ? "for each clip" : "in each step";
  const std::string text =
      fmt::format("weights of the transformer: {} in linear layers", bytes(weights.at("all")));
  const std::string kept = bytes(weights.at("kept")), fetched = bytes(weights.at("step_fetched"));
  const std::string window = bytes(weights.at("window"));
  if (weights.at("residence") == name_of(Residence::sharded)) {
    return text + fmt::format(
                      ", sharded: a rank keeps at most {} of them and gathers at most {} {}, "
                      "through {} of memory\n",
                      kept, fetched, when, window);
  }
  if (weights.at("residence") == name_of(Residence::host)) {
    return text + fmt::format(
                      ", on the host: a rank keeps {} of them and fetches {} {}, through {} of "
                      "memory\n",
                      kept, fetched, when, window);
  }
  return text + fmt::format(", replicated: whole on each rank that {}\n",
                            trains(plan) ? "trains" : "denoises");
}

// Of a model of two transformers.
std::string experts(const json& plan) {
  const json& steps = plan.at("experts").at("steps");
  return fmt::format("experts: {} by transformer, then {} by transformer_2; {}\n",
                     count(steps.at(0), "step"), steps.at(1).get<int>(),
                     plan.at("experts_in_turn")
                         ? "one at a time in memory, loaded anew where a batch comes to its steps, "
                           "to keep the limit"
                         : "both in memory");
}

// Empty if all embeddings may wait.
std::string queue(const json& plan) {
  if (plan.at("queue_bytes") >= plan.at("embedding_bytes")) return {};
  return fmt::format(
      "queue: at most {} of text embeddings{} wait at a time, of {} in all, to keep the limit{}\n",
      bytes(plan["queue_bytes"]), plan.at("encodes_inputs") ? " and encoded inputs" : "",
      bytes(plan["embedding_bytes"]),
      plan.at("mode") == "split" ? ""
                                 : "; the text encoder is loaded again each time the queue is "
                                   "empty");
}

std::string clip_layout(const json& plan) {
  const json& clip = plan.at("layout");
  std::string text;
  const json& mesh = clip.at("mesh");
  const auto why = mesh.at("why").get<std::string>();
  if (!why.empty()) {
    text += fmt::format("mesh: {} ({})\n",
                        to_string(Mesh{mesh.at("cfg"), mesh.at("ring"), mesh.at("ulysses")}), why);
  }
  text += "tokens " + layout(clip.at("tokens"));
  text += "text tokens " + layout(clip.at("text_tokens"));
  const auto speeds = plan.at("speeds").get<std::vector<double>>();
  if (!speeds.empty()) text += fmt::format("speeds: {}\n", fmt::join(speeds, ", "));
  return text;
}

const char* name_in_training(std::string_view stage) {
  return stage == "denoise" ? "train" : stage == "input" ? "video" : "text";
}

std::string rank_memory(const json& memory, bool trains) {
  std::vector<std::string> used;
  for (const char* stage : {"text", "input", "denoise", "decode"}) {
    const json& parts = memory.at("parts").at(stage);
    if (parts.at("weights") == 0 && parts.at("working") == 0) continue;
    used.push_back(
        fmt::format("{} {}", trains ? name_in_training(stage) : stage, bytes(memory.at(stage))));
  }
  const json& limit = memory.at("limit");
  const json& host = memory.at("host");
  return fmt::format("{}{} ({}){}", bytes(memory.at("peak")),
                     limit.is_null() ? "" : fmt::format(" of {}", bytes(limit)),
                     used.empty() ? "idle" : fmt::format("{}", fmt::join(used, ", ")),
                     host.is_null() ? "" : fmt::format("; {} of the host", bytes(host)));
}

// Equal lines of consecutive ranks are merged; at most 16 lines, to keep the text readable.
std::string memory(const json& plan) {
  constexpr int max_lines = 16;
  const json& rows = plan.at("by_rank");
  const auto line = [&](int rank) {
    return rank_memory(rows[static_cast<std::size_t>(rank)].at("memory"), trains(plan));
  };
  const int ranks = static_cast<int>(rows.size());
  std::string text, shown = ranks > 0 ? line(0) : std::string();
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
  if (trains(plan)) {
    const bool encodes = plan["training"].value("encodes_images", false);
    return text +
           fmt::format("memory: text encoder, video encoder and transformer are loaded in turn{}\n",
                       encodes ? "; beside the transformer the encoder again, for images" : "");
  }
  return text +
         fmt::format(
             "memory: weights of the decoder {}, whole on each rank that decodes{}{}\n",
             bytes(plan.at("decoder_weights")),
             plan.at("unloads_text_encoder")
                 ? "; the text encoder is unloaded before transformer and decoder are loaded"
                 : "",
             plan.at("offloads")
                 ? "; transformer and decoder are offloaded: one at a time is loaded in each round "
                   "of clips, to keep the limit"
             : plan.at("unloads_decoder") ? "; loaded in each round of clips, and unloaded after it"
                                          : "");
}

// How the batches are divided over replicas; empty with one replica.
std::string schedule(const json& schedule) {
  if (schedule.is_null()) return {};
  const json& last = schedule.at("last");
  std::string text = fmt::format("batches: {} on {}, the longest first",
                                 schedule.at("batches").get<std::int64_t>(),
                                 count(schedule.at("replicas"), "replica"));
  if (!last.is_null()) {
    return text +
           fmt::format("; then {} on {} of {} ranks\n", last.at("batches").get<std::int64_t>(),
                       count(last.at("replicas"), "replica"), last.at("replica_ranks").get<int>());
  }
  return text + fmt::format("; predicted: a replica has nothing to do for {:.1f} % of the time\n",
                            100 * schedule.at("idle").get<double>());
}

std::string seconds(const json& number) { return format_short_seconds(number.get<double>()); }

// What the times are by, and those of the job and of clips of the first size.
std::string times(const json& plan) {
  const json& of = plan.at("predicted");
  const json& size = of.at("sizes").at(0);
  const json& parts = size.at("step_parts");
  const double step = size.at("step_seconds");
  const auto share = [&](const char* part) {
    return 100 * parts.at(part).get<double>() / std::max(step, 1e-12);
  };
  std::string text =
      fmt::format("predicted time: {} ({} to {}): loading {}, encoding {}, {} {}\n",
                  seconds(of.at("job_seconds")), seconds(of.at("job_seconds_low")),
                  seconds(of.at("job_seconds_high")), seconds(of.at("load_seconds")),
                  seconds(of.at("encode_seconds")), trains(plan) ? "training" : "making clips",
                  seconds(of.at("make_seconds")));
  text += fmt::format("a step takes {}: computation {:.0f} %, memory {:.0f} %, network {:.0f} %",
                      seconds(step), share("computation"), share("memory"), share("network"));
  if (!trains(plan))
    text += fmt::format("; decoding of a clip {}", seconds(size.at("decode_seconds")));
  return text + fmt::format("; by the times of {}{}\n", of.at("machine").get<std::string>(),
                            of.at("measured") ? "" : ", which were not measured");
}

std::string layers(const std::vector<std::int64_t>& layers) {
  if (layers.empty()) return "-";
  const bool together =
      layers.back() - layers.front() + 1 == static_cast<std::int64_t>(layers.size());
  return together ? fmt::format("{}-{}", layers.front(), layers.back())
                  : fmt::format("{}", fmt::join(layers, ","));
}

std::string rank_table(const json& plan) {
  Table table({"rank", "node", "role", "text layers", "tokens",
               trains(plan) ? "encodes" : "decodes", "memory", "sent/step", "GFLOP/step"},
              3);
  const auto shown = [](const json& part) { return part.is_null() ? "-" : box(part); };
  for (const json& rank : plan.at("by_rank")) {
    table.row({fmt::format("{}", rank.at("rank").get<int>()),
               fmt::format("{}", rank.at("node").get<int>()), rank.at("role"),
               layers(rank.at("text_layers")), shown(rank.at("tokens")), shown(rank.at("decodes")),
               bytes(rank.at("memory").at("peak")), bytes(rank.at("step_sent_bytes")),
               fmt::format("{:.4g}", rank.at("step_flops").get<double>() * 1e-9)});
  }
  return table.str();
}

}  // namespace

std::string plan_text(const json& plan, Detail detail) {
  std::string text;
  const auto has = [&](const char* part) { return plan.contains(part); };
  if (has("mode")) text += headline(plan);
  if (has("stages")) text += fmt::format("\n{}", stages(plan));
  if (has("cache")) {
    const json& cache = plan["cache"];
    text += fmt::format("cache {}: {}\n", cache.at("rule").get<std::string>(),
                        cache.at("description").get<std::string>());
  }
  if (has("experts")) text += experts(plan);
  if (detail == Detail::summary) {
    if (has("predicted")) text += times(plan);
    if (has("schedule")) text += schedule(plan["schedule"]);
    text += queue(plan);
    const bool replicated = plan.at("weights").at("residence") == name_of(Residence::replicated);
    return replicated ? text : text + weights(plan);
  }
  if (has("stages")) text += "\n";
  if (has("mode")) text += roles(plan) + weights(plan) + queue(plan);
  if (has("layout")) text += clip_layout(plan);
  if (has("last_batches")) {
    const json& last = plan["last_batches"];
    const auto batches = last.at("batches").get<std::int64_t>();
    text +=
        fmt::format("the last {}:\n{}", batches == 1 ? "batch" : fmt::format("{} batches", batches),
                    plan_text(last.at("plan")));
  }
  if (has("by_rank")) text += memory(plan);
  if (has("schedule")) text += schedule(plan["schedule"]);
  if (has("step")) {
    const json& step = plan["step"];
    text += fmt::format(
        "a step of {}: {:.4g} GFLOP, {:.4g} on the busiest rank; {} sent by its ranks "
        "together\n",
        trains(plan) ? count(plan["training"].at("clips_of_step"), "clip") : "one clip",
        step.at("flops").get<double>() * 1e-9, step.at("most_flops").get<double>() * 1e-9,
        bytes(step.at("sent_bytes")));
  }
  if (has("predicted")) text += times(plan);
  if (detail == Detail::ranks) text += fmt::format("\n{}", rank_table(plan));
  return text;
}

}  // namespace reelmesh
