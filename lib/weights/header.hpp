#pragma once
// The header of a safetensors file: a JSON object of name → {dtype, shape, data_offsets}, with
// offsets relative to the end of the header. Format: github.com/huggingface/safetensors, README.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// One tensor as described by its file, validated: bytes follows from dtype and shape, and
/// [begin, begin + bytes) lies within the file.
struct TensorInfo {
  std::string dtype;  ///< as in the file: "F32", "BF16", "I64", …
  Shape shape;
  std::int64_t bytes = 0;
  std::filesystem::path file;
  std::int64_t begin = 0;  ///< offset of the first byte in the file
};

using TensorInfos = std::map<std::string, TensorInfo>;
/// Texts that programs leave in a file, by their keys ("__metadata__" of the header).
using FileMetadata = std::map<std::string, std::string>;

constexpr std::int64_t max_header_bytes = 100'000'000;
constexpr std::size_t max_tensors = 200'000;  ///< the largest released models have a few thousand
constexpr std::size_t max_rank = 16;

/// Bits per element of a type of the format ("F32"); nullopt for unknown names.
std::optional<int> dtype_bits(std::string_view dtype);

/// The DType of "F32", "F16" and "BF16"; bfloat16 for "F8_E4M3" and "F8_E5M2", all of whose values
/// it has; nullopt for types that cannot be loaded.
std::optional<DType> loadable(std::string_view dtype);
inline constexpr const char* loadable_types = "F32, F16, BF16, F8_E4M3 or F8_E5M2";
/// The format's name of a DType: "F32".
std::string_view safetensors_dtype(DType dtype);

/// Parses and validates a whole header. data_begin, data_bytes: position and size of the data part
/// of the file. Throws Error(data) naming file and tensor unless every tensor's length agrees with
/// its type and shape, and the tensors fill the data part without gap or overlap.
/// metadata: set to that of the header, unless null.
TensorInfos parse_header(std::string_view header, std::int64_t data_begin, std::int64_t data_bytes,
                         const std::filesystem::path& file, FileMetadata* metadata = nullptr);

}  // namespace reelmesh
