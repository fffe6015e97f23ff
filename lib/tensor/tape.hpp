#pragma once
// Gradients by recording: within a scope, ops whose inputs need gradients record how the gradient
// of their result becomes those of their inputs; backward() runs the record in reverse (reverse
// mode; Griewank & Walther 2008). Works on tensors of shapes, too, so that a dry run of a training
// counts what gradients take.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// Rows of tensors [row, column] that are divided among ranks: tokens. Sums over all of them, which
/// gradients of parameters are, are added where a rank has all rows of some columns, in global
/// order, so that their bits do not depend on the division. All but own_columns() and first_rows()
/// are collective over the ranks.
class TokenRows {
 public:
  TokenRows() = default;
  TokenRows(const TokenRows&) = default;
  TokenRows& operator=(const TokenRows&) = default;
  virtual ~TokenRows() = default;

  struct Range {
    std::int64_t begin = 0, count = 0;
  };
  /// The range of so many columns that this rank has in to_columns().
  virtual Range own_columns(std::int64_t columns) const = 0;
  /// x [own row, column] → all rows in global order, [row, own column].
  virtual Tensor to_columns(const Tensor& x) const = 0;
  /// x [own row, column] → all rows in global order with all columns, on every rank.
  virtual Tensor gather(const Tensor& x) const = 0;
  /// own [row, own column] of something that has so many columns → [row, column], on every rank.
  virtual Tensor whole(const Tensor& own, std::int64_t columns) const = 0;
  /// How many rows of all ranks belong to the first segment (text, before video).
  virtual std::int64_t first_rows() const = 0;
  /// int32 [own row]: its number in the global order. Empty: from 0 on. On this device.
  virtual Tensor numbers(Device) const { return {}; }
};

/// Rows of a value that several layers read, as the gradients of all of them need them: moved
/// between ranks for the first, and kept until the last.
class MovedRows {
 public:
  /// As TokenRows, with the same arguments in each call but is_last: whether no other is to come.
  Tensor to_columns(const TokenRows& rows, const Tensor& x, bool is_last);
  Tensor gather(const TokenRows& rows, const Tensor& x, bool is_last);

 private:
  std::optional<Tensor> columns_, all_;
};

/// A value on a tape, without its memory. Converted from a tensor. Reshaped views are the same
/// value, so that its gradient may come in any of these shapes.
struct TapeValue {
  std::int64_t number = 0;  ///< 0: needs no gradient; negative: a parameter
  Shape shape;
  DType dtype = DType::float32;
  Device device;

  TapeValue(const Tensor& x);  // NOLINT(google-explicit-constructor)
  explicit operator bool() const { return number != 0; }
};

/// The gradient of a value has its shape, type and device, with two exceptions: that of a value
/// which every rank has as a whole (a modulation table, an embedding of the time) is float32 on the
/// host; and where all tokens share such a value, [1, chunks · channel], each rank has its own
/// columns of the chunks, [chunk, own column] (ops::shared_by_tokens).
class Tape {
 public:
  /// Takes the gradient of a parameter: this rank's part, float32 on the host.
  using Take = std::function<void(std::size_t parameter, const Tensor& gradient)>;
  /// recomputes_blocks: see checkpoint().
  explicit Tape(Take take, bool recomputes_blocks = true)
      : take_(std::move(take)), recomputes_blocks_(recomputes_blocks) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// That of the innermost Scope of this thread; null outside trainings.
  static Tape* recording();
  /// The same if one of these inputs of an op needs a gradient, otherwise null.
  template <class... Inputs>
  static Tape* of(const Inputs&... inputs) {
    Tape* tape = recording();
    return tape != nullptr && (needs(inputs) || ...) ? tape : nullptr;
  }
  static bool needs(const Tensor& x) { return x.number_ != 0; }
  /// Makes x a parameter. Its gradient is given to Take when it is known.
  static void make_parameter(Tensor& x, std::size_t parameter) {
    x.number_ = -1 - static_cast<std::int64_t>(parameter);
  }

  /// In its scope ops of this thread record themselves on a tape; with null, on none.
  class Scope {
   public:
    explicit Scope(Tape* tape);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Tape* before_;
  };

  /// In its scope the rows of this thread's tensors are these, which must outlive the tape.
  class Rows {
   public:
    explicit Rows(const TokenRows& rows);
    ~Rows();
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;

   private:
    const TokenRows* before_;
  };
  /// Those of the present scope.
  static const TokenRows& rows();

  /// The last ops of a block, x += gate·y after what computes y. Where the block is computed again
  /// (checkpoint()), nobody reads its result, so that they are recorded, and computed only as far
  /// as the gradient of the gate needs y. Does nothing where nothing is recorded.
  class LastOps {
   public:
    explicit LastOps(const Tensor& gate);
    ~LastOps();
    LastOps(const LastOps&) = delete;
    LastOps& operator=(const LastOps&) = delete;

   private:
    Tape* tape_;
  };
  /// Whether the result of an op that is recorded now is read by nobody: of the addition, or of
  /// what computes y.
  bool skips_sum() const { return skips_sum_; }
  bool skips_change() const { return skips_change_; }

  /// Whether a block is computed again.
  bool computes_again() const { return blocks_again_ > 0; }

  /// For a layer that reads x and records itself: the same as for the reader before it, if that
  /// has read the same value and still holds this. As many hold it as have yet to use it.
  std::shared_ptr<MovedRows> moved_rows(const Tensor& x);

  /// For an op that overwrites x: copies x first if somebody else holds its memory, perhaps a
  /// record.
  static void own(Tensor& x);

  /// Says that `out` depends on inputs that need gradients. backward: is called with the gradient
  /// of `out`, and adds those of the inputs. It holds no memory that it does not read.
  using Backward = std::function<void(Tensor d)>;
  void record(Tensor& out, Backward backward);

  // For what is recorded.
  /// The gradient of x so far, which nobody else holds; null if there is none yet.
  Tensor* gradient(const TapeValue& x);
  /// The same; zeros of this shape if there is none yet.
  Tensor& sum(const TapeValue& x, const Shape& shape, DType dtype, Device device);
  Tensor& sum(const TapeValue& x) { return sum(x, x.shape, x.dtype, x.device); }
  /// Sets the first part of the gradient of x; of a parameter, gives it away. Does nothing if x
  /// needs none. To add to it: ops::add_gradient().
  void set(const TapeValue& x, Tensor d);

  /// Computes the gradients of everything that `out` depends on. d: that of `out`.
  void backward(const Tensor& out, Tensor d);

 private:
  friend Tensor checkpoint(int layer, Tensor x, const std::function<Tensor(Tensor)>& block);
  struct Record {
    std::int64_t out;
    Backward backward;
  };
  void run_back_to(std::size_t begin);

  Take take_;
  std::vector<Record> records_;
  std::map<std::int64_t, Tensor> gradients_;
  std::int64_t values_ = 0;
  bool recomputes_blocks_;
  int blocks_again_ = 0;
  bool skips_sum_ = false, skips_change_ = false;
  std::weak_ptr<MovedRows> moved_rows_;
  // Number, memory, columns and rows of the value.
  std::tuple<std::int64_t, const void*, std::int64_t, const TokenRows*> moved_from_{};
};

/// block(x), layer number `layer` of a model, in a span of its own. While a tape records that
/// recomputes blocks, only x is kept of it, and it is computed again for its gradients (Chen et al.
/// 2016), on the same values: what it captures must outlive the tape. It may overwrite its
/// argument.
Tensor checkpoint(int layer, Tensor x, const std::function<Tensor(Tensor)>& block);

}  // namespace reelmesh
