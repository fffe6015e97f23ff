#pragma once
// Rows and columns of arrays, and what gradients need of them.
#include <span>

#include "tensor/tape.hpp"

namespace reelmesh::ops {

/// x as rows of its last axis, which may have no elements.
Tensor as_rows(const Tensor& x);
/// Columns [begin, begin + count) of x [row, column], copied; x itself if these are all.
Tensor columns(const Tensor& x, std::int64_t begin, std::int64_t count);
/// Writes `part` to the columns of x from `begin` on.
void set_columns(Tensor& x, std::int64_t begin, const Tensor& part);
/// The sum of the rows, in their order: [row, column] of float32 on the host → [1, column].
Tensor row_sum(const Tensor& x);

/// Elements [begin, begin + count) of the leading axis, a view, as Tensor::rows(). Its gradient is
/// that of these elements.
Tensor row_range(const Tensor& x, std::int64_t begin, std::int64_t count);
/// Arrays one after the other along the leading axis, copied; a single one is not. The other axes
/// are equal. Gradients of all.
Tensor join_rows(std::span<const Tensor> parts);

/// x, chunks of channels which all tokens share, as the ops on tokens take it. Its gradient, which
/// they add where a rank has columns of the chunks, becomes whole on every rank.
Tensor shared_by_tokens(const Tensor& x);

/// x in another floating type, as Tensor::to(). Gradient: of an x that every rank has as a whole.
Tensor converted(const Tensor& x, DType dtype);

/// Adds d to the gradient of a value on the tape, or gives it away as that of a parameter.
void add_gradient(Tape& tape, const TapeValue& x, Tensor d);
/// x in float32 on the host, as gradients of values that every rank has as a whole.
Tensor numbers(const Tensor& x);

}  // namespace reelmesh::ops
