#pragma once
// The names that reelmesh writes in an output folder. Nothing else in it is ever removed.
#include <array>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

enum class JobFile {
  foreign,  ///< not of reelmesh
  lock,     ///< .lock
  index,    ///< job.h5
  /// trace.h5, clips/NNNNNN.h5, clips/NNN/NNNNNN.h5, metrics.h5,
  /// lora/pytorch_lora_weights.safetensors, transformer/
  result,
  cache,       ///< cache/<hash>.h5, also while it has the name of a process; of any job
  restart,     ///< restart/NNNNNN.h5, restart/training.h5
  status,      ///< status.json
  trace_part,  ///< trace/NNNNNN.rank, …
  temporary,   ///< .NAME.partial of a file that is renamed when it is complete
};

/// The folders in an output folder that reelmesh makes.
inline constexpr std::array<std::string_view, 8> job_subfolders{
    "cache", "clips", "kept", "lora", "restart", "samples", "trace", "transformer"};

/// "clips", and the folders of clips in it that are there (clip_path): "clips/012". Also files and
/// links with these names.
std::vector<std::string> clip_subfolders(const std::filesystem::path& folder);
/// These and the other job_subfolders.
std::vector<std::string> subfolders_of(const std::filesystem::path& folder);

/// What a job makes.
enum class Product { clips, training };

/// What a name is in a subfolder of an output folder, as subfolders_of() gives it; "": in the
/// output folder itself.
JobFile job_file_kind(std::string_view subfolder, const std::string& name);

/// The subfolders, "" among them, in which a file of this name is not foreign.
std::vector<std::string> subfolders_with(const std::string& name);

/// A result or restart file that is there and that a job with another product wrote; empty: none.
/// Errors as job_files.
std::optional<std::filesystem::path> file_of_other_product(const std::filesystem::path& folder,
                                                           Product product);

/// A file of each folder that a job with this product writes, but the cache and parts of traces:
/// "job.h5", "clips/000000.h5", ….
std::vector<std::filesystem::path> files_of(Product product);

/// The files of these kinds that are there. A symbolic link with such a name is listed itself, not
/// what it leads to; subfolders that are links are not entered. std::filesystem::filesystem_error.
std::vector<std::filesystem::path> job_files(const std::filesystem::path& folder,
                                             std::initializer_list<JobFile> kinds);

/// Removes them, links themselves and not what they lead to, and then lora/, restart/, trace/,
/// transformer/ and the folders in clips/ if they are empty. std::filesystem::filesystem_error.
void remove_job_files(const std::filesystem::path& folder, std::initializer_list<JobFile> kinds);

/// How many clips are complete, as their names say; 0 if that cannot be read.
std::size_t count_clips(const std::filesystem::path& folder);

// The folders that a training makes for some of its steps, step-NNNNNN, with links and files of
// these names. std::filesystem::filesystem_error.

/// "step-000100"
std::string step_folder(std::int64_t step);
/// Of the clips that it made: in folder/samples.
std::vector<std::filesystem::path> sampled_folders(const std::filesystem::path& folder);
/// Of results that are kept: in folder/kept; they have lora/ or transformer/.
std::vector<std::filesystem::path> kept_folders(const std::filesystem::path& folder);
/// Of both.
std::vector<std::filesystem::path> step_folders(const std::filesystem::path& folder);

/// Removes the files of the jobs that have made clips of a training in folder/samples, and then
/// their folders if these are empty. std::filesystem::filesystem_error.
void remove_sampled_clips(const std::filesystem::path& folder);

/// Removes the results in one of kept_folders(), and then the folder if it is empty; nothing if it
/// is a link. std::filesystem::filesystem_error.
void remove_kept_result(const std::filesystem::path& kept);
/// The same of all of folder/kept, and then this folder if it is empty.
void remove_kept_results(const std::filesystem::path& folder);

}  // namespace reelmesh
