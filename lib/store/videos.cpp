#include "store/job_parts.hpp"

#include <algorithm>
#include <map>

#include "store/axes.hpp"
#include "store/clip.hpp"

namespace reelmesh {
namespace {

hdf5::Group make_group(hid_t parent, const std::string& name) {
  return hdf5::Group(hdf5::check_in(
      parent, H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      fmt::format("make the group {}", name)));
}

hdf5::Dataspace make_dataspace(hid_t object, const Shape& shape) {
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  return hdf5::Dataspace(hdf5::check_in(
      object, H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
      "describe an array"));
}

/// shape: of all these clips together. The files are found from the folder of job.h5.
hdf5::Dataset create_video(hid_t group, const Shape& shape, const std::vector<int>& clips,
                           const JobRecord& record) {
  const char* const doing = "create a virtual dataset";
  const hdf5::Properties creation(hdf5::check_in(group, H5Pcreate(H5P_DATASET_CREATE), doing));
  hdf5::check_in(group, H5Pset_obj_track_times(creation.get(), false), doing);
  hdf5::check_in(group, H5Pset_layout(creation.get(), H5D_VIRTUAL),
                 doing);  // also if none is listed
  const hdf5::Dataspace all = make_dataspace(group, shape);
  const hdf5::Dataspace one = make_dataspace(group, Shape(shape.begin() + 1, shape.end()));
  std::vector<hsize_t> start(shape.size(), 0), count(shape.begin(), shape.end());
  count[0] = 1;
  for (const int clip : clips) {
    if (record.lists(static_cast<std::size_t>(clip))) {
      hdf5::check_in(group,
                     H5Sselect_hyperslab(all.get(), H5S_SELECT_SET, start.data(), nullptr,
                                         count.data(), nullptr),
                     doing);
      hdf5::check_in(group,
                     H5Pset_virtual(creation.get(), all.get(), clip_path("", clip).c_str(),
                                    "/video", one.get()),
                     doing);
    }
    ++start[0];
  }
  hdf5::check_in(group, H5Sselect_all(all.get()), doing);
  return hdf5::Dataset(hdf5::check_in(group,
                                      H5Dcreate2(group, "video", H5T_NATIVE_UINT8, all.get(),
                                                 H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                                      doing));
}

void write_size(hid_t parent, const Shape& size, const std::vector<int>& numbers,
                const JobRecord& record) {
  const hdf5::Group group = make_group(parent, fmt::format("{}x{}x{}", size[0], size[1], size[2]));
  std::vector<const char*> prompts;
  std::vector<std::uint64_t> seeds;
  std::vector<double> rates;
  for (const int number : numbers) {
    const JobClip& clip = record.clips[static_cast<std::size_t>(number)];
    prompts.push_back(clip.prompt.c_str());
    seeds.push_back(clip.seed);
    rates.push_back(clip.fps);
  }
  const std::int64_t count = std::ssize(numbers);
  Scales scales(group.get());
  scales.add(axes::clip, {numbers.begin(), numbers.end()});
  const auto finish = [&](const hdf5::Dataset& dataset, const char* meaning, const char* units) {
    hdf5::describe(dataset.get(), meaning, units);
    scales.attach(dataset.get(), {axes::clip}, {count});
  };
  finish(hdf5::write_texts(group.get(), "prompt", prompts), "prompt", "");
  const hdf5::Dataset seed = hdf5::create_dataset(group.get(), "seed", H5T_NATIVE_UINT64, {count});
  hdf5::write_all(seed.get(), H5T_NATIVE_UINT64, seeds.data());
  finish(seed, "seed of the initial noise", "1");
  const hdf5::Dataset fps = hdf5::create_dataset(group.get(), "fps", H5T_NATIVE_DOUBLE, {count});
  hdf5::write_all(fps.get(), H5T_NATIVE_DOUBLE, rates.data());
  finish(fps, "frames per second", "s-1");

  Shape shape = size;
  shape.insert(shape.begin(), count);
  const hdf5::Dataset video = create_video(group.get(), shape, numbers, record);
  hdf5::describe(video.get(), "videos, RGB", "1");
  scales.attach(video.get(), {axes::clip, axes::frame, axes::height, axes::width, axes::channel},
                shape);
  const bool equal_rates =
      std::ranges::adjacent_find(rates, std::ranges::not_equal_to()) == rates.end();
  if (equal_rates) scales.add_time(video.get(), size[0], rates.front());
}

}  // namespace

void write_videos(hid_t file, const JobRecord& record) {
  const std::vector<JobClip>& clips = record.clips;
  std::map<Shape, std::vector<int>> by_size;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    if (!clips[i].video.empty()) by_size[clips[i].video].push_back(static_cast<int>(i));
  }
  std::erase_if(by_size, [](const auto& size) { return size.second.size() > max_videos; });
  if (by_size.empty()) return;
  const hdf5::Group videos = make_group(file, "videos");
  for (const auto& [size, numbers] : by_size) write_size(videos.get(), size, numbers, record);
}

}  // namespace reelmesh
