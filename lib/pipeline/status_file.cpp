#include "pipeline/status_file.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/new_file.hpp"
#include "base/trace.hpp"
#include "pipeline/progress.hpp"
#include "store/job.hpp"
#include "store/job_files.hpp"

namespace reelmesh::pipeline {
namespace {

constexpr std::chrono::seconds period{2};

using Steps = decltype(StatusContent::steps);

// "step" and "steps" of the clip that a rank denoises.
void add_progress(nlohmann::ordered_json& json, const comm::Activity& rank, const Steps& steps) {
  if (rank.step < 0) return;
  json["step"] = rank.step;
  if (rank.clip >= 0 && steps) json["steps"] = steps(rank);
}

nlohmann::ordered_json as_json(const comm::Activity& rank, const Steps& steps) {
  nlohmann::ordered_json json{{"rank", rank.rank}, {"host", rank.host}, {"process", rank.process}};
  json["stage"] =
      rank.stage.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(rank.stage);
  const auto add = [&](const char* name, int number) {
    if (number >= 0) json[name] = number;
  };
  add("clip", rank.clip);
  add_progress(json, rank, steps);
  add("layer", rank.layer);
  if (rank.memory.limit > 0) {
    json["memory"] = {
        {"used", rank.memory.used}, {"limit", rank.memory.limit}, {"others", rank.memory.others}};
  }
  if (!rank.waiting.empty()) json["waiting_in"] = rank.waiting;
  json["heard_seconds_ago"] = rank.heard_ago;
  return json;
}

// The clips that ranks work on: what they do with it, and which ranks.
nlohmann::ordered_json at_work(const std::vector<comm::Activity>& activities, const Steps& steps) {
  std::map<std::pair<int, std::string>, nlohmann::ordered_json> found;
  for (const comm::Activity& rank : activities) {
    if (rank.clip < 0) continue;
    const std::string_view work = clip_work(rank);
    const std::string state(work.empty() ? "handed over" : work);
    nlohmann::ordered_json& clip = found[{rank.clip, state}];
    clip["clip"] = rank.clip;
    clip["state"] = state;
    add_progress(clip, rank, steps);
    clip["ranks"].push_back(rank.rank);
  }
  nlohmann::ordered_json clips = nlohmann::ordered_json::array();
  for (auto& [key, clip] : found) clips.push_back(std::move(clip));
  return clips;
}

// Counts the clips that a job has done, by the files in its folder.
class DoneClips {
 public:
  DoneClips(const Job& job, const JobPlan& planned, const FoundClips& found,
            const std::vector<ClipOutline>& made)
      : output_(job.output), files_(count_clips(job.output)) {
    std::size_t left = 0;  // and not to be made: done, in a job that leaves clips
    for (const int clip : found.previews) {
      if (!std::ranges::binary_search(made, clip, {}, &ClipOutline::index)) {
        ++left;
        continue;
      }
      const std::filesystem::path path = clip_path(output_, clip);
      previews_.emplace_back(path, time_of(path));
    }
    before_ = planned.clips.size() - found.unfinished.size() + (job.stop_after ? left : 0);
    all_ = before_ + made.size();
  }

  std::size_t all() const { return all_; }
  std::size_t now() const {
    const auto replaced = std::ranges::count_if(
        previews_, [](const auto& preview) { return time_of(preview.first) != preview.second; });
    const std::size_t files = std::max(files_, count_clips(output_));
    return before_ + files - files_ + static_cast<std::size_t>(replaced);
  }

 private:
  static std::filesystem::file_time_type time_of(const std::filesystem::path& path) {
    std::error_code error;
    return std::filesystem::last_write_time(path, error);
  }

  std::filesystem::path output_;
  std::size_t files_, before_ = 0, all_ = 0;
  // Files that are replaced by those of complete clips, and when they were written.
  std::vector<std::pair<std::filesystem::path, std::filesystem::file_time_type>> previews_;
};

}  // namespace

StatusContent status_of_clips(const Job& job, const JobPlan& planned, const FoundClips& found,
                              const std::vector<ClipOutline>& made) {
  const Steps steps = [&planned](const comm::Activity& rank) {
    return static_cast<int>(
        planned.end_step(planned.clips.at(static_cast<std::size_t>(rank.clip))));
  };
  const auto done = std::make_shared<const DoneClips>(job, planned, found, made);
  const auto status = [done, steps](const std::vector<comm::Activity>& activities) {
    return nlohmann::ordered_json{
        {"clips", done->all()}, {"complete", done->now()}, {"at_work", at_work(activities, steps)}};
  };
  const auto progress = std::make_shared<ClipsProgress>(
      static_cast<std::int64_t>(done->all()), batch_steps(made, planned.kinds), job.keep_video);
  const auto line = [progress](const nlohmann::ordered_json& said,
                               const std::vector<comm::Activity>& activities, double seconds) {
    return progress->line(said.at("complete").get<std::int64_t>(), activities, seconds);
  };
  return {status, steps, line};
}

StatusFile::StatusFile(const std::filesystem::path& output, StatusContent content,
                       const comm::Watchdog& watchdog)
    : folder_(output),
      content_(std::move(content)),
      watchdog_(watchdog),
      line_(ProgressLine::standard_error(content_.line != nullptr)) {
  thread_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    std::chrono::nanoseconds wait{};
    do {
      const auto began = std::chrono::steady_clock::now();
      write();  // may read the folder of clips, of which there may be a million
      wait = std::max<std::chrono::nanoseconds>(period,
                                                20 * (std::chrono::steady_clock::now() - began));
    } while (!changed_.wait_for(lock, wait, [this] { return ending_; }));
  });
}

StatusFile::~StatusFile() { end(); }

void StatusFile::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  line_.clear();
}

void StatusFile::remove() {
  end();
  std::error_code ignored;
  std::filesystem::remove(folder_ / "status.json", ignored);
}

void StatusFile::write() {
  const std::vector<comm::Activity> activities = watchdog_.activities();
  const nlohmann::ordered_json job = content_.job(activities);
  if (content_.line) line_.show(content_.line(job, activities, line_.now()));
  nlohmann::ordered_json status{{"updated", iso8601_now()}};
  status.update(job);
  nlohmann::ordered_json& ranks = status["ranks"] = nlohmann::ordered_json::array();
  for (const comm::Activity& rank : activities) ranks.push_back(as_json(rank, content_.steps));
  try {
    NewFile file(folder_ / "status.json", Flush::no);
    file.write(status.dump(1) + "\n");
    file.commit();
  } catch (const Error&) {
    // A job needs no status file: what is there stays.
  }
}

}  // namespace reelmesh::pipeline
