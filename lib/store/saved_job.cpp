#include "store/saved_job.hpp"

#include "store/check.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

constexpr std::size_t max_texts = std::size_t{1} << 30;  // of all texts: a million prompts

}  // namespace

std::string checksum_of_job(std::string_view options, std::vector<std::string_view> requests,
                            std::string_view working_folder, std::string_view weights_hash) {
  requests.insert(requests.end(), {options, working_folder, weights_hash});
  return texts_checksum(requests);
}

SavedJob read_job(const std::filesystem::path& path) {
  std::error_code error;
  require(std::filesystem::exists(path, error), Status::no_input, "{}: file not found",
          path.string());
  const hdf5::File file = hdf5::open_if_valid(path);
  require(static_cast<bool>(file), Status::data,
          "{}: found a file that HDF5 cannot open, expected job.h5 of an earlier job",
          path.string());
  const hid_t root = file.get();
  require(hdf5::has_text(root, "program", "reelmesh"), Status::data,
          "{}: found a file of another program, or a clip or trace, expected job.h5 of a job",
          path.string());
  require(hdf5::is_known_version(root), Status::data,
          "{}: is of a newer format than this program reads, which is {}: use the reelmesh that "
          "wrote it",
          path.string(), hdf5::format_version);
  const auto options = hdf5::read_text(root, "options", max_texts);
  require(options.has_value(), Status::data, "{}: found no readable attribute options",
          path.string());
  require(hdf5::is_inside(root, "requests", H5O_TYPE_DATASET) &&
              hdf5::is_inside(root, "provenance", H5O_TYPE_GROUP),
          Status::data,
          "{}: found no /requests and /provenance, expected those of a job of this version of "
          "reelmesh; run it with its job file instead",
          path.string());
  const hdf5::Dataset dataset(H5Dopen2(root, "requests", H5P_DEFAULT));
  const hdf5::Group provenance(H5Gopen2(root, "provenance", H5P_DEFAULT));
  auto requests = dataset ? hdf5::read_texts(dataset.get(), max_texts) : std::nullopt;
  const auto read_text_attribute = [&](const char* name) {
    return provenance ? hdf5::read_text(provenance.get(), name, max_texts) : std::nullopt;
  };
  const auto folder = read_text_attribute("working_folder"),
             hash = read_text_attribute("weights_hash");
  require(requests && folder && hash, Status::data,
          "{}: /requests or /provenance cannot be read: the file is damaged", path.string());
  SavedJob job{*options,
               std::move(*requests),
               *folder,
               *hash,
               hdf5::read_text(root, "plan_json", max_texts).value_or(""),
               hdf5::read_number(root, "measured_seconds")};
  require(hdf5::has_text(root, checksum_name,
                         checksum_of_job(job.options, {job.requests.begin(), job.requests.end()},
                                         job.working_folder, job.weights_hash)),
          Status::data,
          "{}: options or requests are not those that were written: the file is damaged",
          path.string());
  require(!job.requests.empty(), Status::data, "{}: found no requests, expected at least one",
          path.string());
  return job;
}

}  // namespace reelmesh
