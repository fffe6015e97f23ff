#include "store/clip.hpp"

#include "comm/together.hpp"
#include "store/check.hpp"
#include "store/clip_arrays.hpp"

namespace reelmesh {

std::filesystem::path clip_path(const std::filesystem::path& folder, int index) {
  const std::filesystem::path clips = folder / "clips";
  const std::string name = fmt::format("{:06}.h5", index);
  if (index < first_clip_in_folder) return clips / name;
  return clips / fmt::format("{:03}", index / clips_of_folder) / name;
}

void write_clip(const comm::Group& group, const std::filesystem::path& folder,
                const ClipRecord& record, const ClipArrays& values, bool replace,
                std::optional<std::int64_t> stopped_after) {
  std::vector<StoredArray> arrays;
  for (const auto& array : clip_arrays) {
    const std::optional<Sharded>& x = values.*array.values;
    if (x) arrays.push_back({array.name, array.meaning, *x, array.dtype, array.axes});
  }
  if (values.video) arrays.front().fps = record.settings.fps.value_or(0);
  if (const auto& ids = record.token_ids; !ids.empty()) {
    const Shape shape{std::ssize(ids)};
    arrays.push_back(
        {"token_ids",
         "tokens of the prompt",
         {Tensor::of(std::span(ids), shape), Layout::replicated(shape, group.size()), group},
         DType::int32,
         {axes::token}});
  }
  const std::filesystem::path path = clip_path(folder, record.index);
  comm::run_on_first_rank(group, [&] {
    require(replace || !std::filesystem::exists(path), Status::cannot_create,
            "{} exists already; use --output.if-exists replace to overwrite it", path.string());
    std::error_code error;  // without the folder the file cannot be created, which says why
    if (record.index >= first_clip_in_folder) {
      std::filesystem::create_directory(path.parent_path(), error);
    }
  });
  write_arrays(group, path, hdf5::Storage::deflated_chunks, arrays,
               [&](hid_t file, const Checksums&) {
                 hdf5::write_title(file, fmt::format("clip {} of reelmesh", record.index));
                 hdf5::write_record(file, record);
                 if (stopped_after) {
                   hdf5::write_attribute(file, stopped_after_name, *stopped_after);
                 }
               });
}

}  // namespace reelmesh
