// Attributes, and datasets of texts.
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "store/hdf5.hpp"
#include "store/text_heap.hpp"

namespace reelmesh::hdf5 {
namespace {

/// UTF-8 of variable length.
Datatype text_type() {
  Datatype type(H5Tcopy(H5T_C_S1));
  expect(static_cast<bool>(type) && H5Tset_size(type.get(), H5T_VARIABLE) >= 0 &&
             H5Tset_cset(type.get(), H5T_CSET_UTF8) >= 0,
         "HDF5 refuses texts of variable length: {}", innermost_error());
  return type;
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> result;
  for (const std::string& text : texts) result.push_back(text.c_str());
  return result;
}

Dataspace list_space(hid_t object, std::size_t count) {
  const hsize_t extent = count;
  return Dataspace(check_in(object, H5Screate_simple(1, &extent, nullptr), "describe an array"));
}

void write_value(hid_t object, const char* name, hid_t type, hid_t space, const void* value) {
  const Attribute attribute(
      check_in(object, H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT),
               fmt::format("create attribute {}", name)));
  check_in(object, H5Awrite(attribute.get(), type, value), fmt::format("write attribute {}", name));
}

void write_scalar(hid_t object, const char* name, hid_t type, const void* value) {
  const Dataspace space(check_in(object, H5Screate(H5S_SCALAR), "describe a scalar"));
  write_value(object, name, type, space.get(), value);
}

/// An attribute that holds a single value; an empty handle if there is none.
Attribute open_scalar(hid_t object, const char* name) {
  if (H5Aexists(object, name) <= 0) return {};
  Attribute attribute(H5Aopen(object, name, H5P_DEFAULT));
  if (!attribute) return {};
  const Dataspace space(H5Aget_space(attribute.get()));
  if (!space || H5Sget_simple_extent_npoints(space.get()) != 1) return {};
  return attribute;
}

/// The type of references to texts in memory.
Datatype reference_type() { return Datatype(H5Tcreate(H5T_OPAQUE, sizeof(TextReference))); }

/// The file that has the object; empty if HDF5 does not say.
std::optional<TextHeap> open_text_heap(hid_t object) {
  char name[4096];
  const ssize_t length = H5Fget_name(object, name, sizeof name);
  if (length <= 0 || length >= static_cast<ssize_t>(sizeof name)) return std::nullopt;
  return std::optional<TextHeap>(std::in_place, name);
}

}  // namespace

void write_attribute(hid_t object, const char* name, std::string_view value) {
  const std::string text(value);
  const char* pointer = text.c_str();
  write_scalar(object, name, text_type().get(), &pointer);
}

void write_attribute(hid_t object, const char* name, const std::vector<std::string>& values) {
  std::vector<const char*> texts = pointers(values);
  texts.resize(std::max<std::size_t>(texts.size(), 1));  // HDF5 needs an address for none, too
  write_value(object, name, text_type().get(), list_space(object, values.size()).get(),
              texts.data());
}

void write_attribute(hid_t object, const char* name, std::int64_t value) {
  write_scalar(object, name, H5T_NATIVE_INT64, &value);
}

void write_attribute(hid_t object, const char* name, std::uint64_t value) {
  write_scalar(object, name, H5T_NATIVE_UINT64, &value);
}

void write_attribute(hid_t object, const char* name, double value) {
  write_scalar(object, name, H5T_NATIVE_DOUBLE, &value);
}

void write_flag(hid_t object, const char* name, bool value) {
  const std::int8_t number = value ? 1 : 0;
  write_scalar(object, name, H5T_NATIVE_INT8, &number);
}

void write_flag_meanings(hid_t dataset, hid_t type, const std::vector<std::string>& meanings) {
  std::vector<std::int16_t> values(meanings.size());
  std::iota(values.begin(), values.end(), std::int16_t{0});
  const char* name = "flag_values";
  const Attribute attribute(
      check_in(dataset,
               H5Acreate2(dataset, name, type, list_space(dataset, values.size()).get(),
                          H5P_DEFAULT, H5P_DEFAULT),
               "create attribute flag_values"));
  check_in(dataset, H5Awrite(attribute.get(), H5T_NATIVE_INT16, values.data()),
           "write attribute flag_values");
  write_attribute(dataset, "flag_meanings", fmt::format("{}", fmt::join(meanings, " ")));
}

void describe(hid_t dataset, std::string_view long_name, std::string_view units) {
  write_attribute(dataset, "long_name", long_name);
  write_attribute(dataset, "units", units);
}

void write_title(hid_t file, std::string_view title, std::int64_t version) {
  write_attribute(file, "format_version", version);
  write_attribute(file, "title", title);
}

Dataset write_texts(hid_t parent, const char* name, const std::vector<const char*>& values) {
  const std::string doing = fmt::format("write dataset {}", name);
  const Datatype type = text_type();
  Dataset dataset(
      check_in(parent,
               H5Dcreate2(parent, name, type.get(), list_space(parent, values.size()).get(),
                          H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
               doing));
  if (!values.empty()) write_all(dataset.get(), type.get(), values.data());
  return dataset;
}

std::optional<std::string> read_text(hid_t object, const char* name, std::size_t limit) {
  const Attribute attribute = open_scalar(object, name);
  if (!attribute) return std::nullopt;
  const Datatype type(H5Aget_type(attribute.get()));
  if (!type || H5Tis_variable_str(type.get()) <= 0) return std::nullopt;
  TextReference reference;
  if (H5Aread(attribute.get(), reference_type().get(), reference.data()) < 0) return std::nullopt;
  std::optional<TextHeap> heap = open_text_heap(object);
  return heap ? heap->read(reference, limit) : std::nullopt;
}

std::optional<std::vector<std::string>> read_texts(hid_t dataset, std::size_t limit) {
  const Datatype type(H5Dget_type(dataset));
  const Dataspace space(H5Dget_space(dataset));
  if (!type || H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) <= 0 ||
      !space || H5Sget_simple_extent_ndims(space.get()) != 1) {
    return std::nullopt;
  }
  const Properties creation(H5Dget_create_plist(dataset));
  if (!creation || H5Pget_layout(creation.get()) != H5D_CONTIGUOUS ||
      H5Pget_external_count(creation.get()) != 0) {
    return std::nullopt;
  }
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (count == 0) return std::optional<std::vector<std::string>>(std::in_place);
  const auto max_count =
      std::min<hsize_t>(H5Dget_storage_size(dataset), limit) / sizeof(TextReference);
  if (count < 0 || static_cast<hsize_t>(count) > max_count) return std::nullopt;
  std::vector<TextReference> references(static_cast<std::size_t>(count));
  std::optional<TextHeap> heap = open_text_heap(dataset);
  if (!heap || H5Dread(dataset, reference_type().get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                       references.data()) < 0) {
    return std::nullopt;
  }
  std::vector<std::string> texts;
  for (const TextReference& reference : references) {
    std::optional<std::string> text = heap->read(reference, limit);
    if (!text) return std::nullopt;
    limit -= text->size();
    texts.push_back(std::move(*text));
  }
  return texts;
}

std::optional<std::uint64_t> read_unsigned(hid_t object, const char* name) {
  const Attribute attribute = open_scalar(object, name);
  if (!attribute) return std::nullopt;
  const Datatype type(H5Aget_type(attribute.get()));
  std::uint64_t value = 0;
  if (!type || H5Tget_class(type.get()) != H5T_INTEGER ||
      H5Aread(attribute.get(), H5T_NATIVE_UINT64, &value) < 0) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> read_number(hid_t object, const char* name) {
  const Attribute attribute = open_scalar(object, name);
  if (!attribute) return std::nullopt;
  const Datatype type(H5Aget_type(attribute.get()));
  double value = 0;
  if (!type || (H5Tget_class(type.get()) != H5T_FLOAT && H5Tget_class(type.get()) != H5T_INTEGER) ||
      H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &value) < 0) {
    return std::nullopt;
  }
  return value;
}

}  // namespace reelmesh::hdf5
