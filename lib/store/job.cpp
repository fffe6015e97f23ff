#include "store/job.hpp"

#include <fmt/chrono.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <numeric>
#include <optional>

#include "base/utf8.hpp"
#include "store/axes.hpp"
#include "store/check.hpp"
#include "store/clip.hpp"
#include "store/hdf5.hpp"
#include "store/job_parts.hpp"
#include "store/pieces.hpp"
#include "store/saved_job.hpp"
#include "store/table.hpp"

namespace reelmesh {
namespace {

/// Makes an external link; readers resolve its path relative to the folder of this file.
void link(hid_t group, const std::string& name, const std::string& target,
          const std::string& object = "/") {
  hdf5::check_in(group,
                 H5Lcreate_external(target.c_str(), object.c_str(), group, name.c_str(),
                                    H5P_DEFAULT, H5P_DEFAULT),
                 fmt::format("link {}", target));
}

hdf5::Group make_group(hid_t parent, const std::string& name) {
  return hdf5::Group(hdf5::check_in(
      parent, H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      fmt::format("make {}", name)));
}

/// Relative to the folder of the index if it is in it.
std::string link_target(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const std::filesystem::path own = std::filesystem::absolute(folder).lexically_normal();
  const std::filesystem::path target = std::filesystem::absolute(file).lexically_normal();
  const std::filesystem::path relative = target.lexically_relative(own);
  return *relative.begin() == ".." ? target.string() : relative.string();
}

void write_samples(hid_t file, const std::filesystem::path& folder, const JobRecord& record,
                   bool validate, const char* name) {
  std::optional<hdf5::Group> all;
  for (const JobSample& sample : record.samples) {
    if (sample.validates != validate) continue;
    if (!all) all.emplace(make_group(file, name));
    const hdf5::Group group = make_group(all->get(), fmt::format("{:06}", sample.index));
    hdf5::write_attribute(group.get(), "prompt", sample.prompt);
    hdf5::write_attribute(group.get(), "file", as_utf8(sample.file));
    for (const JobSample::File* to : {&sample.video, &sample.caption}) {
      std::error_code error;
      if (!record.unfinished() && !std::filesystem::exists(to->path, error)) continue;
      for (const std::string& array : to->arrays) {
        link(group.get(), array, link_target(to->path, folder), fmt::format("/{}", array));
      }
    }
  }
}

// Job files have no line ends within values; the prompts as they are are in /requests.
std::string as_input_file(const std::vector<std::pair<std::string, std::string>>& options) {
  std::string text;
  for (const auto& [key, value] : options) {
    std::string line = fmt::format("{} = {}", key, value);
    std::ranges::replace_if(
        line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    text += line + '\n';
  }
  return text;
}

void write_states(hid_t file, const std::vector<JobClip>& clips) {
  std::vector<std::int32_t> numbers(clips.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<std::int8_t> states;
  std::vector<const char*> reasons;
  for (const JobClip& clip : clips) {
    states.push_back(static_cast<std::int8_t>(clip.state.state));
    reasons.push_back(clip.state.reason.c_str());
  }
  NewTable table(file, {"states", "clip", "how far each clip has come", 0, {}}, std::ssize(clips));
  const auto add = [&](const Column& column, const void* values) {
    const hdf5::Dataset dataset = table.add(column);
    if (!clips.empty()) hdf5::write_all(dataset.get(), column.type, values);
  };
  add({"clip", 0, H5T_NATIVE_INT32, "number of the clip", "", 0, {}}, numbers.data());
  add({"state",
       0,
       H5T_NATIVE_INT8,
       "state",
       "",
       0,
       {"MISSING", "SAVED", "FAILED", "COMPLETE", "PREVIEW"}},
      states.data());
  table.add_texts({"reason", 0, hdf5::no_id, "why it failed", "", 0, {}}, reasons);
}

void write_requests(hid_t file, const std::vector<JobClip>& clips) {
  std::vector<const char*> requests;
  for (const JobClip& clip : clips) requests.push_back(clip.request.c_str());
  const hdf5::Dataset dataset = hdf5::write_texts(file, "requests", requests);
  hdf5::describe(dataset.get(), "what was asked for, as lines of a .jsonl prompt file", "");
  Scales(file).attach(dataset.get(), {axes::clip}, {std::ssize(requests)});
}

void write_links(hid_t file, const std::filesystem::path& folder, const JobRecord& record) {
  const hdf5::Group clips = make_group(file, "clips");
  for (std::size_t i = 0; i < record.clips.size(); ++i) {
    if (!record.lists(i)) continue;
    const std::filesystem::path clip = clip_path("", static_cast<int>(i));
    link(clips.get(), clip.stem().string(), clip.string());
  }
  write_samples(file, folder, record, false, "samples");
  write_samples(file, folder, record, true, "validation_samples");
  std::error_code error;
  if (record.trace &&
      (record.unfinished() || std::filesystem::exists(folder / "trace.h5", error))) {
    link(file, "trace", "trace.h5");
  }
}

void fill(hid_t file, const std::filesystem::path& folder, const JobRecord& record) {
  hdf5::write_title(file, "job of reelmesh", hdf5::format_version);
  hdf5::write_attribute(file, "program", record.program);
  hdf5::write_attribute(file, "version", record.version);
  hdf5::write_attribute(file, "git_revision", record.revision);
  const std::string options = as_input_file(record.options);
  std::vector<std::string_view> requests;
  for (const JobClip& clip : record.clips) requests.push_back(clip.request);
  hdf5::write_attribute(file, "options", options);
  hdf5::write_attribute(
      file, checksum_name,
      checksum_of_job(options, std::move(requests), record.provenance.working_folder,
                      record.provenance.weights_hash));
  hdf5::write_attribute(file, "plan", record.plan);
  hdf5::write_attribute(file, "plan_json", record.plan_json);
  if (!record.tuned.empty()) hdf5::write_attribute(file, "tuned", record.tuned);
  if (!record.planned_again.empty()) {
    hdf5::write_attribute(file, "planned_again", record.planned_again);
  }
  if (!record.new_rates.empty()) hdf5::write_attribute(file, "new_rates", record.new_rates);
  hdf5::write_attribute(file, "hosts", record.hosts);
  hdf5::write_attribute(file, "start", record.start);
  hdf5::write_attribute(file, "end", record.end);
  if (record.predicted_seconds) {
    hdf5::write_attribute(file, "predicted_seconds", *record.predicted_seconds);
  }
  if (record.measured_seconds) {
    hdf5::write_attribute(file, "measured_seconds", *record.measured_seconds);
  }
  hdf5::write_attribute(file, "status", record.status);
  write_states(file, record.clips);
  write_requests(file, record.clips);
  write_videos(file, record);
  write_provenance(file, record.provenance);
  write_links(file, folder, record);
}

}  // namespace

std::string iso8601(std::chrono::system_clock::time_point time) {
  const auto seconds = std::chrono::system_clock::to_time_t(time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(seconds));
}

std::string iso8601_now() { return iso8601(std::chrono::system_clock::now()); }

void write_job(const std::filesystem::path& folder, const JobRecord& record) {
  hdf5::write_file(folder / "job.h5", [&](hid_t file) { fill(file, folder, record); });
}

std::string read_new_rates(const std::filesystem::path& folder) {
  const hdf5::File file = hdf5::open_if_valid(folder / "job.h5");
  if (!file) return {};
  return hdf5::read_text(file.get(), "new_rates", std::size_t{1} << 20).value_or("");
}

}  // namespace reelmesh
