#include "store/axes.hpp"

#include <hdf5_hl.h>

#include <numeric>

namespace reelmesh {

void Scales::attach(hid_t dataset, const std::vector<Axis>& axes, const Shape& shape) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::string name(axes[i].name);
    if (!made_.contains(name)) {
      std::vector<std::int32_t> index(static_cast<std::size_t>(shape[i]));
      std::iota(index.begin(), index.end(), 0);
      add(axes[i], index);
    }
    const auto& [scale, extent] = made_.at(name);
    expect(extent == shape[i], "an array has {} along {}, another array has {}", shape[i], name,
           extent);
    const auto dimension = static_cast<unsigned>(i);
    hdf5::check_in(dataset, H5DSattach_scale(dataset, scale.get(), dimension),
                   "attach a dimension scale");
    hdf5::check_in(dataset, H5DSset_label(dataset, dimension, name.c_str()), "label a dimension");
  }
}

void Scales::add(const Axis& axis, const std::vector<std::int32_t>& values) {
  const std::string name(axis.name);
  hdf5::Dataset scale =
      hdf5::create_dataset(parent_, name.c_str(), H5T_NATIVE_INT32, {std::ssize(values)});
  hdf5::write_all(scale.get(), H5T_NATIVE_INT32, values.data());
  hdf5::check_in(scale.get(), H5DSset_scale(scale.get(), name.c_str()), "make a dimension scale");
  hdf5::describe(scale.get(), axis.meaning, "1");
  made_.emplace(name, std::pair(std::move(scale), std::ssize(values)));
}

void Scales::add_time(hid_t video, std::int64_t frames, double fps) {
  const hdf5::Dataset time = hdf5::create_dataset(parent_, "time", H5T_NATIVE_DOUBLE, {frames});
  std::vector<double> seconds(static_cast<std::size_t>(frames));
  for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = static_cast<double>(i) / fps;
  hdf5::write_all(time.get(), H5T_NATIVE_DOUBLE, seconds.data());
  hdf5::describe(time.get(), "time since the first frame", "s");
  attach(time.get(), {axes::frame}, {frames});
  hdf5::write_attribute(video, "coordinates", "time");
}

}  // namespace reelmesh
