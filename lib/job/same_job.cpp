#include "job/same_job.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "comm/group_values.hpp"
#include "job/requests.hpp"

namespace reelmesh {
namespace {

// What is compared: options and other settings in the same order on all ranks, then clips.
class Facts {
 public:
  Facts(const Job& job, const std::string& program) : job_(job) {
    settings_.emplace_back("the program", program);
    // Relative paths are relative to it.
    settings_.emplace_back("the current folder", std::filesystem::current_path().string());
    settings_.emplace_back("--clips", fmt::format("{}", fmt::join(job.chosen, ",")));
    for (const auto& [name, value] : job.options) settings_.emplace_back("--" + name, value);
  }

  std::size_t count() const { return settings_.size() + job_.clips.size(); }
  std::string name(std::size_t i) const {
    if (i < settings_.size()) return settings_[i].first;
    return fmt::format("clip {}", i - settings_.size());
  }
  std::string value(std::size_t i) const {
    if (i < settings_.size()) return settings_[i].second;
    return request_line(job_.clips[i - settings_.size()]);
  }
  std::uint64_t hash(std::size_t i) const { return hash_of(name(i) + '\0' + value(i)); }

 private:
  const Job& job_;
  std::vector<std::pair<std::string, std::string>> settings_;
};

std::string shortened(const std::string& value) {
  constexpr std::size_t max = 200;
  const std::string text = one_line(value);
  return text.size() <= max ? text : fmt::format("{}...", text_prefix(text, max));
}

}  // namespace

void require_same_job_together(const comm::Group& world, const Job& job,
                               const std::string& program) {
  const Facts facts(job, program);
  std::vector<std::uint64_t> hashes(facts.count());
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = facts.hash(i);
  const std::uint64_t all =
      hash_of({reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof hashes[0]});
  const std::vector<std::uint64_t> of_ranks = comm::all_gather_value(world, all);
  if (std::ranges::all_of(of_ranks, [&](std::uint64_t hash) { return hash == all; })) return;

  // The first difference from rank 0 that any rank has.
  const std::vector<std::uint64_t> first = comm::broadcast_values(world, hashes, 0);
  const auto own = std::ranges::mismatch(hashes, first).in1 - hashes.begin();
  const bool differs = hashes != first;
  const auto none = INT64_MAX;
  const std::vector<std::int64_t> places =
      comm::all_gather_value(world, differs ? static_cast<std::int64_t>(own) : none);
  const std::int64_t place = *std::ranges::min_element(places);
  std::string ranks;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank] == place) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  }
  const auto other = static_cast<int>(std::ranges::min_element(places) - places.begin());
  const auto i = static_cast<std::size_t>(place);
  const auto text = [&](int rank) {
    return world.broadcast(i < facts.count()
                               ? fmt::format("{} {}", facts.name(i), shortened(facts.value(i)))
                               : std::string("nothing more"),
                           rank);
  };
  const std::string expected = text(0), found = text(other);
  fail(
      Status::usage,
      "the ranks were given unlike jobs: found {} on rank 0 and {} on rank{} {}, expected the same "
      "options and clips on all ranks",
      expected, found, ranks.find(',') == std::string::npos ? "" : "s", ranks);
}

}  // namespace reelmesh
