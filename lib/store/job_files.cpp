#include "store/job_files.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "base/new_file.hpp"

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

bool is_own_folder(const fs::path& path) { return fs::is_directory(fs::symlink_status(path)); }

}  // namespace

std::optional<fs::path> file_of_other_product(const fs::path& folder, Product product) {
  for (const fs::path& file : job_files(folder, {JobFile::result, JobFile::restart})) {
    const fs::path place = file.lexically_relative(folder);
    const auto own = std::ranges::find_if(names, [&](const Name& name) {
      return name.subfolder == place.parent_path().string() &&
             matches(place.filename().string(), name.name);
    });
    if (own != names.end() && own->product.value_or(product) != product) return place;
  }
  return std::nullopt;
}

JobFile job_file_kind(std::string_view subfolder, const std::string& name) {
  for (const Name& own : names) {
    if (own.subfolder != subfolder) continue;
    if (matches(name, own.name)) return own.kind;
    if (own.renamed && matches(name_when_complete(name), own.name)) {
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
  for (const std::string_view subfolder : job_subfolders) {
    if (is_own_folder(folder / subfolder)) list(folder / subfolder, subfolder);
  }
  return found;
}

void remove_job_files(const fs::path& folder, std::initializer_list<JobFile> kinds) {
  for (const fs::path& file : job_files(folder, kinds)) fs::remove(file);
  for (const char* subfolder : {"lora", "restart", "trace", "transformer"}) {
    std::error_code ignored;  // it has other files, or is the root of another file system
    if (is_own_folder(folder / subfolder)) fs::remove(folder / subfolder, ignored);
  }
}

std::vector<fs::path> sampled_folders(const fs::path& folder) {
  const fs::path samples = folder / "samples";
  std::vector<fs::path> found;
  if (!is_own_folder(samples)) return found;
  constexpr std::string_view name = "step-";
  for (const auto& entry : fs::directory_iterator(samples)) {
    const std::string own = entry.path().filename().string();
    if (own.starts_with(name) && matches(own.substr(name.size()), "#")) {
      found.push_back(entry.path());
    }
  }
  return found;
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
