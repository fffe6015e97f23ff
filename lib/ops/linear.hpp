#pragma once
#include <functional>
#include <memory>

#include "ops/onednn.hpp"
#include "tensor/float8.hpp"
#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

enum class Activation { none, silu, gelu_tanh };

/// What a weight W [out, in] is multiplied with: x·Wᵀ, or d·W, the gradient of x from that of x·Wᵀ.
enum class Pass { forward, backward };

/// A weight [out, in] of a floating type, read by rows: it need not be in memory as a whole.
struct WeightRows {
  std::int64_t in = 0, out = 0;
  DType dtype = DType::float32;
  /// Writes rows [first, first + count) to `into`, `stride` elements apart (stride ≥ in). Called
  /// from several threads at once.
  std::function<void(std::int64_t first, std::int64_t count, void* into, std::int64_t stride)> read;
  Device device;  ///< the device that computes
  Numerics numerics;
  /// The same rows as a checkpoint stores them; null: not in 8 bits.
  std::shared_ptr<const Float8Rows> float8 = nullptr;
};

/// The transposed weight, [in, out]. in_memory: its rows are read now, into a copy in host memory
/// that the result keeps; otherwise all of them for every call.
WeightRows transposed(const WeightRows& weight, bool in_memory);

/// How the weight [out, in] of a linear layer is stored for multiplication, without its values. It
/// consists of units that are made independently: on the CPU tiles of at most 192 output columns,
/// each packed in oneDNN's layout for this processor or in that of AMX's kernels; on a GPU rows,
/// unchanged.
class LinearForm {
 public:
  LinearForm() = default;
  LinearForm(std::int64_t in, std::int64_t out, DType dtype, Device device);

  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }
  DType dtype() const { return dtype_; }
  DType compute() const { return compute_; }  ///< the type of GEMM inputs
  Device device() const { return device_; }
  std::int64_t units() const;
  /// Elements of the units before this one; offset(units()) is the number of all elements.
  std::int64_t offset(std::int64_t unit) const;
  /// The first row of the weight that a unit holds; row(units()) == out().
  std::int64_t row(std::int64_t unit) const;

  /// Makes units [first, first + count) → [element] on device(). All threads read rows; on a GPU
  /// while earlier rows are in transfer.
  Tensor pack(const WeightRows& weight, std::int64_t first, std::int64_t count) const;
  /// The same, to the memory of such a result.
  void pack(const WeightRows& weight, std::int64_t first, std::int64_t count, Tensor& packed) const;
  /// Computes the outputs of units [first, first + count): columns of y [row, out]. x: [row, in] of
  /// type compute(), y of type dtype(), bias: float32 [out] or empty. CPU only.
  void multiply(const Tensor& x, const Tensor& packed, std::int64_t first, std::int64_t count,
                const Tensor& bias, Activation activation, Tensor& y) const;
  /// In a dry run: the buffers of threads that multiply() would use for this number of rows.
  void note_product_scratch(std::int64_t rows) const;

 private:
  struct Tile {
    std::int64_t column;  ///< first output column
    std::int64_t columns;
    std::size_t product;  ///< oneDNN: index into products_
    std::int64_t offset;  ///< of its packed weights, in elements
  };
  /// What the tiles are multiplied by: uses_amx(compute()) when the form was made.
  enum class Engine { onednn, amx };
  void multiply_by_onednn(const Tensor& x, const Tensor& packed, std::int64_t first,
                          std::int64_t count, const Tensor& bias, Activation activation,
                          Tensor& y) const;
  void multiply_by_amx(const Tensor& x, const Tensor& packed, std::int64_t first,
                       std::int64_t count, const Tensor& bias, Activation activation,
                       Tensor& y) const;
  void pack_on_cpu(const WeightRows& weight, std::int64_t first, std::int64_t count,
                   Tensor& packed) const;
  void note_packing_scratch() const;
  const Tile& tile(std::int64_t unit) const { return tiles_[static_cast<std::size_t>(unit)]; }

  std::int64_t in_ = 0, out_ = 0;
  DType dtype_ = DType::float32, compute_ = DType::float32;
  Device device_;
  Engine engine_ = Engine::onednn;
  std::int64_t elements_ = 0;  ///< of all tiles
  std::vector<TileProduct> products_;
  std::vector<Tile> tiles_;  ///< on the CPU
};

/// The values of a weight that need not be in memory while no layer uses it.
class WeightSource {
 public:
  WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  virtual ~WeightSource() = default;
  /// Calls use(first, count, values) for units [first, first + count) at a time, in order, until
  /// all were used; on a GPU once for all units. values: as from LinearForm::pack; valid during the
  /// call, on a GPU for work that the call enqueues.
  using Use = std::function<void(std::int64_t first, std::int64_t count, const Tensor& values)>;
  virtual void visit(const Use& use) const = 0;
  /// Replaces the values, in the memory in which they are kept. Collective over the ranks that keep
  /// them together.
  virtual void set_together(const WeightRows& weight) const = 0;
};

/// y = activation(x·Wᵀ + b). On the CPU the weight is packed in its own type; if GEMMs use a wider
/// type (compute_dtype), each tile is converted when it is used. Sums are float32; the result is
/// rounded once (on a GPU silu is applied to the rounded sum). The bits of a row depend only on
/// that row, unless Numerics::reproducible is off on a GPU.
class Linear {
 public:
  Linear() = default;
  /// weight: [out, in]; bias: [out], or empty for none. Floating types. x and y have the weight's
  /// type; computes on the weight's device.
  explicit Linear(const Tensor& weight, const Tensor& bias = {}, const Numerics& numerics = {});
  /// Reads each row once. On the CPU rows are packed as they are read, without an unpacked copy of
  /// the weight.
  explicit Linear(const WeightRows& weight, const Tensor& bias = {});
  /// Takes the values from `source` whenever the layer is called.
  Linear(const LinearForm& form, std::shared_ptr<const WeightSource> source, const Tensor& bias,
         const Numerics& numerics);

  /// The default of all_rows.
  static constexpr std::int64_t usual_rows = 4096;
  /// x: [..., in] of the weight's type → [..., out] of the same type. all_rows: a number of rows
  /// that is the same in every layout, near that of the whole matrix of which x is this rank's
  /// share. On a GPU the algorithm, and with it the bits, is chosen for it.
  Tensor operator()(const Tensor& x, Activation activation = Activation::none,
                    std::int64_t all_rows = usual_rows) const;
  /// The same for an x with all rows of its matrix: no other rank has a share of them.
  Tensor with_all_rows(const Tensor& x, Activation activation = Activation::none) const {
    return (*this)(x, activation, x.numel() / in_features());
  }

  /// Replaces the values of this layer and of its copies, in their memory. Arguments as of the
  /// constructor that reads rows, of the same shapes. Collective as WeightSource::set_together().
  void set_together(const WeightRows& weight, const Tensor& bias = {});

  /// Where the values are from; null if they are kept.
  const std::shared_ptr<const WeightSource>& source() const { return source_; }
  /// The same layer, whose values are from another source.
  Linear from(std::shared_ptr<const WeightSource> source) const {
    Linear layer = *this;
    layer.source_ = std::move(source);
    return layer;
  }

  /// On a GPU: the product d·W [..., in] of the gradient d [..., out] of this layer's sums, by the
  /// same values, without a bias. Other devices need a layer of the transposed() weight.
  Linear backward() const;

  std::int64_t in_features() const { return pass_ == Pass::forward ? form_.in() : form_.out(); }
  std::int64_t out_features() const { return pass_ == Pass::forward ? form_.out() : form_.in(); }

 private:
  Tensor own_bias(const Tensor& bias) const;

  LinearForm form_;
  Pass pass_ = Pass::forward;
  Numerics numerics_;
  Tensor bias_;    ///< [out] or empty; float32 on the CPU, the weight's type on a GPU
  Tensor packed_;  ///< [element], unless there is a source
  std::shared_ptr<const WeightSource> source_;
};

}  // namespace reelmesh::ops
