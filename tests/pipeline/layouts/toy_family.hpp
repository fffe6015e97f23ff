#pragma once
// A further model family, for tests: a transformer with self-attention and cross-attention to the
// text in one block, which can be trained, and a decoder with one matrix product, both with weights
// from a fixed seed. lib/ knows it only through Family::add.
#include "job/family.hpp"

namespace reelmesh::test {

inline constexpr const char* toy_class = "ToyPipeline";

/// Writes such a model, for texts of this encoder.
void write_toy_model(const std::filesystem::path& root, const std::filesystem::path& text_encoder);

/// Registers the family: folders whose model_index.json names ToyPipeline can then be opened. Its
/// text encoder is a T5, which is read from the folder.
void add_toy_family();

}  // namespace reelmesh::test
