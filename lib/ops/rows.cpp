#include "ops/rows.hpp"

#include "ops/pointwise.hpp"
#include "tensor/ledger.hpp"
#include "tensor/strided_copy.hpp"

namespace reelmesh::ops {
namespace {

// Between all columns of a dense array and some of another one.
gpu::StridedCopy copy_of_columns(std::int64_t rows, std::int64_t columns) {
  gpu::StridedCopy copy;
  copy.axes = 2;
  copy.extent[0] = rows;
  copy.extent[1] = columns;
  copy.source[0] = copy.target[0] = columns;
  copy.source[1] = copy.target[1] = 1;
  return copy;
}

}  // namespace

Tensor as_rows(const Tensor& x) {
  const Shape leading(x.shape().begin(), x.shape().end() - 1);
  return x.reshape({numel(leading), x.shape().back()});
}

Tensor columns(const Tensor& x, std::int64_t begin, std::int64_t count) {
  if (begin == 0 && count == x.shape(1)) return x;
  Tensor out = Tensor::empty({x.shape(0), count}, x.dtype(), x.device());
  if (out.empty()) return out;
  gpu::StridedCopy copy = copy_of_columns(x.shape(0), count);
  copy.source[0] = x.shape(1);
  copy.source_offset = begin;
  copy_elements(copy, x, out);
  return out;
}

void set_columns(Tensor& x, std::int64_t begin, const Tensor& part) {
  if (part.empty()) return;
  gpu::StridedCopy copy = copy_of_columns(part.shape(0), part.shape(1));
  copy.target[0] = x.shape(1);
  copy.target_offset = begin;
  copy_elements(copy, part, x);
}

Tensor row_sum(const Tensor& x) {
  const std::int64_t columns = x.shape(1);
  Tensor out = Tensor::zeros({1, columns}, DType::float32, x.device());
  note_moved(x.bytes());
  for (std::int64_t i = 0; i < x.numel() && !x.device().only_shapes; ++i) {
    out.data<float>()[i % columns] += x.data<float>()[i];
  }
  return out;
}

Tensor row_range(const Tensor& x, std::int64_t begin, std::int64_t count) {
  Tensor out = x.rows(begin, count);
  if (Tape* tape = Tape::of(x)) {
    tape->record(out, [tape, x = TapeValue(x), begin, count](const Tensor& d) {
      Tensor part = tape->sum(x).rows(begin, count);
      add(part, d.reshape(part.shape()));
    });
  }
  return out;
}

Tensor join_rows(std::span<const Tensor> parts) {
  if (parts.size() == 1) return parts.front();
  Shape shape = parts.front().shape();
  shape[0] = 0;
  bool needed = false;
  for (const Tensor& part : parts) {
    shape[0] += part.shape(0);
    needed = needed || Tape::of(part) != nullptr;
  }
  Tensor out = Tensor::empty(shape, parts.front().dtype(), parts.front().device());
  std::vector<TapeValue> values;
  std::int64_t row = 0;
  for (const Tensor& part : parts) {
    out.rows(row, part.shape(0)).copy_from(part);
    row += part.shape(0);
    values.emplace_back(part);
  }
  if (needed) {
    Tape* tape = Tape::recording();
    tape->record(out, [tape, values](const Tensor& d) {
      std::int64_t first = 0;
      for (const TapeValue& part : values) {
        add_gradient(*tape, part, d.rows(first, part.shape[0]));
        first += part.shape[0];
      }
    });
  }
  return out;
}

Tensor shared_by_tokens(const Tensor& x) {
  Tensor out = x;
  if (Tape* tape = Tape::of(x)) {
    const TokenRows* rows = &tape->rows();
    tape->record(out, [tape, rows, x = TapeValue(x)](const Tensor& d) {
      const std::int64_t channels = numel(x.shape) / d.shape(0);
      add_gradient(*tape, x, rows->whole(d, channels).reshape(x.shape));
    });
  }
  return out;
}

Tensor converted(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor out = x.to(dtype);
  note_moved(x.bytes() + out.bytes());
  if (Tape* tape = Tape::of(x)) {
    tape->record(out, [tape, x = TapeValue(x)](const Tensor& d) {
      add_gradient(*tape, x, d.reshape(x.shape));
    });
  }
  return out;
}

void add_gradient(Tape& tape, const TapeValue& x, Tensor d) {
  if (!x) return;
  if (Tensor* sum = x.number > 0 ? tape.gradient(x) : nullptr) {
    return add(*sum, d.reshape(sum->shape()));
  }
  tape.set(x, std::move(d));
}

Tensor numbers(const Tensor& x) { return x.on(x.device().host()).to(DType::float32); }

}  // namespace reelmesh::ops
