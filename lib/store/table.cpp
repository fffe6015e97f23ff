#include "store/table.hpp"

#include <hdf5_hl.h>

#include <utility>

namespace reelmesh {
namespace {

void make_scale(hid_t dataset, const std::string& name) {
  hdf5::check_in(dataset, H5DSset_scale(dataset, name.c_str()), "make a dimension scale");
}

/// A dimension without a coordinate, as netCDF-4 stores it: a scale of this type and name, for
/// whose values no space is allocated.
hdf5::Dataset make_dimension(hid_t group, const char* name, std::int64_t extent) {
  const hsize_t count = static_cast<hsize_t>(extent);
  const std::string doing = fmt::format("create dimension {}", name);
  const hdf5::Dataspace space(hdf5::check_in(group, H5Screate_simple(1, &count, nullptr), doing));
  const hdf5::Properties creation(hdf5::check_in(group, H5Pcreate(H5P_DATASET_CREATE), doing));
  hdf5::check_in(group, H5Pset_obj_track_times(creation.get(), false), doing);
  hdf5::Dataset scale(hdf5::check_in(group,
                                     H5Dcreate2(group, name, H5T_IEEE_F32BE, space.get(),
                                                H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                                     doing));
  make_scale(scale.get(),
             fmt::format("This is a netCDF dimension but not a netCDF variable.{:10}", extent));
  return scale;
}

}  // namespace

std::string column_path(const TableFormat& table, const Column& column) {
  return fmt::format("{}/{}", table.name, column.name);
}

std::string column_values(const TableFormat& table, const Column& column, std::string_view rows) {
  const std::size_t size = H5Tget_size(column.type), count = rows.size() / table.row_bytes;
  std::string values(count * size, '\0');
  const auto copy = [&]<std::size_t bytes>(std::integral_constant<std::size_t, bytes>) {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(values.data() + i * bytes, rows.data() + i * table.row_bytes + column.offset,
                  bytes);
    }
  };
  switch (size) {  // a constant size makes a copy one instruction
    case 1:
      copy(std::integral_constant<std::size_t, 1>());
      break;
    case 2:
      copy(std::integral_constant<std::size_t, 2>());
      break;
    case 4:
      copy(std::integral_constant<std::size_t, 4>());
      break;
    case 8:
      copy(std::integral_constant<std::size_t, 8>());
      break;
    default:
      fail(Status::internal, "column {} has values of {} bytes", column.name, size);
  }
  return values;
}

NewTable::NewTable(hid_t parent, const TableFormat& table, std::int64_t rows)
    : group_(hdf5::check_in(parent,
                            H5Gcreate2(parent, table.name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                            fmt::format("make /{}", table.name))),
      rows_(rows),
      dimension_(table.dimension) {
  hdf5::write_attribute(group_.get(), "long_name", table.long_name);
}

void NewTable::finish(const hdf5::Dataset& dataset, const Column& column) {
  hdf5::describe(dataset.get(), column.long_name, column.unit);
  if (!scale_ && std::string_view(column.name) == dimension_) {
    make_scale(dataset.get(), dimension_);
    scale_ = hdf5::open_dataset(group_.get(), dimension_);
    return;
  }
  if (!scale_) scale_ = make_dimension(group_.get(), dimension_, rows_);
  hdf5::check_in(dataset.get(), H5DSattach_scale(dataset.get(), scale_.get(), 0),
                 "attach a dimension scale");
  hdf5::check_in(dataset.get(), H5DSset_label(dataset.get(), 0, dimension_), "label a dimension");
}

hdf5::Dataset NewTable::add(const Column& column) {
  // HDF5 has no chunks without values.
  const hdf5::Storage storage = rows_ > 0 ? hdf5::Storage::deflated_chunks : hdf5::Storage::whole;
  hdf5::Dataset dataset =
      hdf5::create_dataset(group_.get(), column.name, column.type, {rows_}, storage);
  finish(dataset, column);
  if (!column.meanings.empty()) {
    hdf5::write_flag_meanings(dataset.get(), column.type, column.meanings);
  }
  return dataset;
}

void NewTable::add_texts(const Column& column, const std::vector<const char*>& values) {
  finish(hdf5::write_texts(group_.get(), column.name, values), column);
}

void create_table(hid_t parent, const TableFormat& table, std::int64_t rows) {
  NewTable made(parent, table, rows);
  for (const Column& column : table.columns) made.add(column);
}

void write_table(hid_t parent, const TableFormat& table, std::string_view rows) {
  const std::size_t count = rows.size() / table.row_bytes;
  NewTable made(parent, table, static_cast<std::int64_t>(count));
  for (const Column& column : table.columns) {
    if (column.letters == 0) {
      const hdf5::Dataset dataset = made.add(column);
      const std::string values = column_values(table, column, rows);
      if (count > 0) hdf5::write_all(dataset.get(), column.type, values.data());
      continue;
    }
    std::vector<std::string> texts;
    std::vector<const char*> pointers;
    for (std::size_t i = 0; i < count; ++i) {
      const char* text = rows.data() + i * table.row_bytes + column.offset;
      texts.emplace_back(text, strnlen(text, column.letters));
    }
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    made.add_texts(column, pointers);
  }
}

}  // namespace reelmesh
