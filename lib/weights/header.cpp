#include "weights/header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "tensor/float8.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<std::string_view, int>, 22> formats{
    {{"F32", 32},        {"F16", 16},       {"BF16", 16},   {"F64", 64},    {"I64", 64},
     {"I32", 32},        {"I16", 16},       {"I8", 8},      {"U64", 64},    {"U32", 32},
     {"U16", 16},        {"U8", 8},         {"BOOL", 8},    {"C64", 64},    {"F8_E5M2", 8},
     {"F8_E4M3", 8},     {"F8_E8M0", 8},    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
     {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}}};

/// A required member of an entry.
const json& member(const json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end()) fail(Status::data, "{}: no '{}'", where, key);
  return *found;
}

/// A number that must be an integer from 0 to 2^63 − 1. The type is checked first, because the
/// parser turns larger numbers into doubles, and negative ones would wrap.
std::int64_t size_value(const json& value, const char* what, const std::string& where) {
  constexpr auto max_value = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > max_value) {
    fail(Status::data, "{}: {} holds {}, expected integers from 0 to 2^63 - 1", where, what,
         printable(value.dump()));
  }
  return value.get<std::int64_t>();
}

const json& array_value(const json& value, const char* what, const std::string& where) {
  if (!value.is_array()) {
    fail(Status::data, "{}: {} is {}, expected an array", where, what, printable(value.dump()));
  }
  return value;
}

/// The size in bytes that follows from type and shape.
std::int64_t needed_bytes(const TensorInfo& info, const std::string& where) {
  std::int64_t bits = dtype_bits(info.dtype).value();
  for (const std::int64_t extent : info.shape) bits = checked_product(bits, extent, where);
  if (bits % 8 != 0) fail(Status::data, "{}: {} bits, expected whole bytes", where, bits);
  return bits / 8;
}

TensorInfo parse_entry(const json& entry, std::int64_t data_begin, std::int64_t data_bytes,
                       const std::filesystem::path& file, const std::string& where) {
  if (!entry.is_object()) {
    fail(Status::data, "{}: {}, expected an object", where, printable(entry.dump()));
  }
  TensorInfo info;
  info.file = file;
  const json& dtype = member(entry, "dtype", where);
  if (!dtype.is_string() || !dtype_bits(dtype.get_ref<const std::string&>())) {
    fail(Status::data, "{}: dtype is {}, expected a type such as \"F32\"", where,
         printable(dtype.dump()));
  }
  info.dtype = dtype.get<std::string>();

  const json& shape = array_value(member(entry, "shape", where), "shape", where);
  if (shape.size() > max_rank) {
    fail(Status::data, "{}: {} axes, expected at most {}", where, shape.size(), max_rank);
  }
  for (const json& extent : shape) info.shape.push_back(size_value(extent, "shape", where));

  const json& offsets = array_value(member(entry, "data_offsets", where), "data_offsets", where);
  if (offsets.size() != 2) {
    fail(Status::data, "{}: {} data_offsets, expected 2", where, offsets.size());
  }
  const std::int64_t begin = size_value(offsets[0], "data_offsets", where);
  const std::int64_t end = size_value(offsets[1], "data_offsets", where);
  if (begin > end || end > data_bytes) {
    fail(Status::data, "{}: data_offsets [{}, {}], expected a range in the {} bytes of data", where,
         begin, end, data_bytes);
  }
  info.begin = data_begin + begin;
  info.bytes = end - begin;
  if (const std::int64_t needed = needed_bytes(info, where); needed != info.bytes) {
    fail(Status::data, "{}: {} bytes of data, expected {} for {} {}", where, info.bytes, needed,
         info.dtype, to_string(info.shape));
  }
  return info;
}

void check_metadata(const json& metadata, const std::filesystem::path& file) {
  const bool strings =
      metadata.is_object() &&
      std::all_of(metadata.begin(), metadata.end(), [](const json& v) { return v.is_string(); });
  require(strings, Status::data, "{}: __metadata__ is not an object of strings", file.string());
}

/// Checks that the tensors, sorted by offset, fill the data part without gaps and overlaps.
void check_offsets(const TensorInfos& tensors, std::int64_t data_begin, std::int64_t data_bytes,
                   const std::filesystem::path& file) {
  std::vector<const TensorInfos::value_type*> order;
  order.reserve(tensors.size());
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.bytes) <
           std::pair(b->second.begin, b->second.bytes);
  });
  std::int64_t next = data_begin;
  for (const auto* tensor : order) {
    if (tensor->second.begin != next) {
      fail(Status::data, "{}: tensor '{}': data begin at {}, expected {}: {}", file.string(),
           printable(tensor->first), tensor->second.begin - data_begin, next - data_begin,
           tensor->second.begin < next ? "tensors overlap" : "a gap before it");
    }
    next += tensor->second.bytes;
  }
  require(next == data_begin + data_bytes, Status::data,
          "{}: the tensors hold {} bytes, but {} follow the header", file.string(),
          next - data_begin, data_bytes);
}

}  // namespace

std::optional<int> dtype_bits(std::string_view dtype) {
  for (const auto& [name, bits] : formats) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

std::optional<DType> loadable(std::string_view dtype) {
  if (dtype == "F32") return DType::float32;
  if (dtype == "F16") return DType::float16;
  if (dtype == "BF16" || float8_values(dtype) != nullptr) return DType::bfloat16;
  return std::nullopt;
}

std::string_view safetensors_dtype(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "F32";
    case DType::bfloat16:
      return "BF16";
    case DType::float16:
      return "F16";
    case DType::int32:
      return "I32";
    case DType::uint8:
      return "U8";
  }
  return "?";
}

TensorInfos parse_header(std::string_view header, std::int64_t data_begin, std::int64_t data_bytes,
                         const std::filesystem::path& file, FileMetadata* metadata) {
  if (header.empty() || header.front() != '{') {
    fail(Status::data, "{}: the header does not begin with '{{': not a safetensors file",
         file.string());
  }
  // Depth 3: an object of objects of arrays. Values per tensor: the object, the dtype, two arrays,
  // two offsets and the extents.
  const json root = parse_json(header, file.string(), {.depth = 3, .values = max_tensors * 16});
  if (root.size() > max_tensors + 1) {
    fail(Status::data, "{}: {} tensors, expected at most {}", file.string(), root.size(),
         max_tensors);
  }
  TensorInfos tensors;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      check_metadata(entry, file);
      if (metadata != nullptr) *metadata = entry.get<FileMetadata>();
      continue;
    }
    const std::string where = fmt::format("{}: tensor '{}'", file.string(), printable(name));
    tensors.emplace(name, parse_entry(entry, data_begin, data_bytes, file, where));
  }
  check_offsets(tensors, data_begin, data_bytes, file);
  return tensors;
}

}  // namespace reelmesh
