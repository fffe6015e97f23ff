#include "store/job_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/hash.hpp"
#include "base/new_file.hpp"
#include "store/clip.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

struct Name {
  std::string_view subfolder;
  // '#' stands for six digits or more, '%' for a hash, '*' for a host and the number of a process
  std::string_view name;
  JobFile kind;
  bool renamed;                                   // it is a NewFile, with a temporary name at first
  std::optional<Product> product = std::nullopt;  // jobs that write it; empty: all
};

constexpr std::array<Name, 17> names{
    {{"", ".lock", JobFile::lock, false},
     {"", "job.h5", JobFile::index, true},
     {"", "trace.h5", JobFile::result, true},
     {"", "status.json", JobFile::status, true},
     {"", "metrics.h5", JobFile::result, true, Product::training},
     {"lora", "pytorch_lora_weights.safetensors", JobFile::result, true, Product::training},
     {"transformer", "config.json", JobFile::result, true, Product::training},
     {"transformer", "diffusion_pytorch_model.safetensors", JobFile::result, true,
      Product::training},
     {"cache", "%.h5", JobFile::cache, true, Product::training},
     {"cache", "%.*.h5", JobFile::cache, true, Product::training},
     {"clips", "#.h5", JobFile::result, true, Product::clips},
     {"restart", "#.h5", JobFile::restart, true, Product::clips},
     {"restart", "training.h5", JobFile::restart, true, Product::training},
     {"trace", "#.rank", JobFile::trace_part, false},
     {"trace", "#.spans", JobFile::trace_part, false},
     {"trace", "#.messages", JobFile::trace_part, false},
     {"trace", "#.counters", JobFile::trace_part, false}}};

bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.starts_with('%')) {
    const std::size_t digits = std::min(name.find_first_not_of("0123456789abcdef"), name.size());
    const std::string_view rest = name.substr(digits);
    if (digits != Hash::digits) return false;
    return pattern == "%.*.h5" ? rest.starts_with('.') && rest.ends_with(".h5") && rest != ".h5"
                               : rest == pattern.substr(1);
  }
  if (!pattern.starts_with('#')) return name == pattern;
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return digits >= 6 && name.substr(digits) == pattern.substr(1);
}

constexpr std::string_view folder_of_clips = "clips";

/// The number that a name begins with; empty if it begins with none.
std::optional<int> number_of(std::string_view name) {
  int number = -1;
  std::from_chars(name.data(), name.data() + name.size(), number);
  return number >= 0 ? std::optional(number) : std::nullopt;
}

/// The subfolder in which the clip is whose file has this name; if it is none, any.
std::string subfolder_of_clip(std::string_view name) {
  return clip_path("", number_of(name).value_or(0)).parent_path().string();
}

/// Whether clips/NAME is a folder of clips.
bool is_of_clips(const std::string& name) {
  const int number = number_of(name).value_or(0);
  return number >= first_clip_in_folder / clips_of_folder &&
         number <= std::numeric_limits<int>::max() / clips_of_folder &&
         subfolder_of_clip(std::to_string(number * clips_of_folder)) ==
             fs::path(folder_of_clips) / name;
}

/// The row's folder of `names` for one of subfolders_of().
std::string_view folder_in_names(std::string_view subfolder) {
  return subfolder.starts_with("clips/") ? folder_of_clips : subfolder;
}

bool is_own_folder(const fs::path& path) { return fs::is_directory(fs::symlink_status(path)); }

}  // namespace

std::optional<fs::path> file_of_other_product(const fs::path& folder, Product product) {
  for (const fs::path& file : job_files(folder, {JobFile::result, JobFile::restart})) {
    const fs::path place = file.lexically_relative(folder);
    const std::string subfolder = place.parent_path().string();
    const auto own = std::ranges::find_if(names, [&](const Name& name) {
      return name.subfolder == folder_in_names(subfolder) &&
             matches(place.filename().string(), name.name);
    });
    if (own != names.end() && own->product.value_or(product) != product) return place;
  }
  return std::nullopt;
}

std::vector<std::string> clip_subfolders(const fs::path& folder) {
  std::vector<std::string> found{std::string(folder_of_clips)};
  std::error_code unreadable;
  if (!is_own_folder(folder / folder_of_clips)) return found;
  for (fs::directory_iterator it(folder / folder_of_clips, unreadable), end;
       !unreadable && it != end; it.increment(unreadable)) {
    const std::string name = it->path().filename().string();
    if (is_of_clips(name)) found.push_back((fs::path(folder_of_clips) / name).string());
  }
  return found;
}

std::vector<std::string> subfolders_of(const fs::path& folder) {
  std::vector<std::string> found = clip_subfolders(folder);
  for (const std::string_view subfolder : job_subfolders) {
    if (subfolder != folder_of_clips) found.emplace_back(subfolder);
  }
  return found;
}

std::vector<std::string> subfolders_with(const std::string& name) {
  std::vector<std::string> found{""};
  found.insert(found.end(), job_subfolders.begin(), job_subfolders.end());
  const std::string_view complete = name_when_complete(name);
  const std::string of_clip = subfolder_of_clip(complete.empty() ? name : complete);
  if (of_clip != folder_of_clips) found.push_back(of_clip);
  std::erase_if(found, [&](const std::string& subfolder) {
    return job_file_kind(subfolder, name) == JobFile::foreign;
  });
  return found;
}

JobFile job_file_kind(std::string_view subfolder, const std::string& name) {
  for (const Name& own : names) {
    if (own.subfolder != folder_in_names(subfolder)) continue;
    const auto is = [&](std::string_view complete) {
      // In clips/ also those of folders, where earlier versions had them.
      return matches(complete, own.name) &&
             (subfolder == own.subfolder || subfolder == subfolder_of_clip(complete));
    };
    if (is(name)) return own.kind;
    if (own.renamed && is(name_when_complete(name))) {
      return own.kind == JobFile::cache ? JobFile::cache : JobFile::temporary;
    }
  }
  return JobFile::foreign;
}

std::vector<fs::path> files_of(Product product) {
  std::vector<fs::path> files;
  for (const Name& own : names) {
    if (!own.renamed || own.product.value_or(product) != product) continue;
    if (own.kind == JobFile::cache) continue;
    if (!files.empty() && files.back().parent_path() == own.subfolder) continue;
    std::string name(own.name);
    if (name.starts_with('#')) name.replace(0, 1, "000000");
    files.push_back(fs::path(own.subfolder) / name);
  }
  return files;
}

std::vector<fs::path> job_files(const fs::path& folder, std::initializer_list<JobFile> kinds) {
  std::vector<fs::path> found;
  const auto list = [&](const fs::path& where, std::string_view subfolder) {
    for (const auto& entry : fs::directory_iterator(where)) {
      const JobFile kind = job_file_kind(subfolder, entry.path().filename().string());
      const bool wanted = std::ranges::find(kinds, kind) != kinds.end();
      if (wanted && !is_own_folder(entry.path())) found.push_back(entry.path());
    }
  };
  list(folder, "");
  for (const std::string& subfolder : subfolders_of(folder)) {
    if (is_own_folder(folder / subfolder)) list(folder / subfolder, subfolder);
  }
  return found;
}

void remove_job_files(const fs::path& folder, std::initializer_list<JobFile> kinds) {
  for (const fs::path& file : job_files(folder, kinds)) fs::remove(file);
  for (const std::string& subfolder : subfolders_of(folder)) {
    if (subfolder == "cache" || subfolder == folder_of_clips || subfolder == "samples" ||
        subfolder == "kept") {
      continue;
    }
    std::error_code ignored;  // it has other files, or is the root of another file system
    if (is_own_folder(folder / subfolder)) fs::remove(folder / subfolder, ignored);
  }
}

std::size_t count_clips(const fs::path& folder) {
  std::size_t count = 0;
  for (const std::string& subfolder : clip_subfolders(folder)) {
    std::error_code unreadable;
    for (fs::directory_iterator it(folder / subfolder, unreadable), end; !unreadable && it != end;
         it.increment(unreadable)) {
      if (job_file_kind(subfolder, it->path().filename().string()) == JobFile::result) ++count;
    }
  }
  return count;
}

namespace {

constexpr std::string_view step_name = "step-";

std::vector<fs::path> step_folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  if (!is_own_folder(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string own = entry.path().filename().string();
    if (own.starts_with(step_name) && matches(own.substr(step_name.size()), "#")) {
      found.push_back(entry.path());
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

std::string step_folder(std::int64_t step) { return fmt::format("{}{:06}", step_name, step); }

std::vector<fs::path> sampled_folders(const fs::path& folder) {
  return step_folders_in(folder / "samples");
}

std::vector<fs::path> kept_folders(const fs::path& folder) {
  return step_folders_in(folder / "kept");
}

std::vector<fs::path> step_folders(const fs::path& folder) {
  std::vector<fs::path> all = sampled_folders(folder);
  std::ranges::move(kept_folders(folder), std::back_inserter(all));
  return all;
}

void remove_kept_result(const fs::path& kept) {
  if (!is_own_folder(kept)) return;
  remove_job_files(kept, {JobFile::result, JobFile::temporary});
  std::error_code ignored;  // it has other files
  fs::remove(kept, ignored);
}

void remove_kept_results(const fs::path& folder) {
  for (const fs::path& kept : kept_folders(folder)) remove_kept_result(kept);
  std::error_code ignored;  // it has other files
  if (is_own_folder(folder / "kept")) fs::remove(folder / "kept", ignored);
}

void remove_sampled_clips(const fs::path& folder) {
  std::error_code ignored;  // it has other files
  for (const fs::path& clips : sampled_folders(folder)) {
    if (!is_own_folder(clips)) continue;
    remove_job_files(clips,
                     {JobFile::result, JobFile::restart, JobFile::status, JobFile::trace_part,
                      JobFile::temporary, JobFile::index, JobFile::lock});
    fs::remove(clips / "clips", ignored);
    fs::remove(clips, ignored);
  }
  if (is_own_folder(folder / "samples")) fs::remove(folder / "samples", ignored);
}

}  // namespace reelmesh
