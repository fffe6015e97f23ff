#pragma once
// A third family, for tests: a transformer of one joint attention and a decoder of one product,
// with weights that follow from a seed. Nothing in lib/ knows of it but through Family::add.
#include "pipeline/family.hpp"

namespace reelmesh::test {

inline constexpr const char* toy_class = "ToyPipeline";

/// Makes folders whose model_index.json names ToyPipeline models that can be opened. Their text
/// encoder is a T5.
void add_toy_family();

}  // namespace reelmesh::test
