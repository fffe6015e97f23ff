#pragma once
// Dry runs: code runs as usual, on tensors that have shapes and no memory (Device::shapes), and
// what it would take is counted. As PyTorch's meta device.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/trace.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/gpus.hpp"
#include "tensor/purpose.hpp"
#include "tensor/time_model.hpp"

namespace reelmesh {

/// The processor that weights are packed for. oneDNN's packed layout and its padding of rows and
/// columns depend on it.
enum class PackedFor {
  this_processor,  ///< size on this machine; for types that it does not compute in
                   ///< (ops::compute_dtype) the same as any_processor
  any_processor,   ///< maximum over all known layouts
};

/// Data types and packing, which determine sizes.
struct Precision {
  DType tensors = DType::float32;
  /// The type in which products of `tensors` are computed: ops::compute_dtype(tensors).
  DType products = DType::float32;
  bool on_gpu = false;  ///< weights are not packed; convolutions have padded channels
  PackedFor packed_for = PackedFor::this_processor;
  GpuRanks gpus = {};

  std::int64_t size() const { return size_of(tensors); }
  /// As ops::compute_dtype, for a dry run.
  DType products_of(DType dtype) const { return dtype == tensors ? products : DType::float32; }
  Device device() const { return Device::shapes(on_gpu); }
};

/// Kinds of operations whose times differ from those of others with the same span, or that have no
/// span. All other kinds are names of spans.
namespace operation_kinds {
inline constexpr const char* group_norm = "group_norm";  ///< norms of images
inline constexpr const char* group_sums = "group_sums";  ///< sums for them
inline constexpr const char* copy = "copy";              ///< copies and sums of tensors
}  // namespace operation_kinds

/// A convolution of tiles on a GPU, for which its library chooses an algorithm: of `source` [item,
/// frame, row, column, in] with `weight` [out, frame, row, column, in].
struct ConvolutionShape {
  DType dtype = DType::float32;
  std::vector<std::int64_t> source, weight;
  std::int64_t stride = 1;
  auto operator<=>(const ConvolutionShape&) const = default;
};

/// What dry runs take.
class Ledger {
 public:
  /// times: of the machine, for elapsed(); may be null.
  explicit Ledger(const Precision& precision, std::shared_ptr<const TimeModel> times = nullptr);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// That of the DryRun of this thread; Error(internal) if there is none.
  static Ledger& current();
  static Ledger* active();  ///< or null

  const Precision& precision() const { return precision_; }

  /// Counts the memory of a tensor of shapes until the last owner is gone, which may outlive the
  /// ledger. On a host, blocks are placed and rounded as by its allocator; those of a GPU are added
  /// up.
  std::shared_ptr<const void> allocate(Device device, std::int64_t bytes);

  // Memory of tensors on the device: of a host, what their pages take.
  std::int64_t present() const;      ///< without holes between blocks
  std::int64_t peak() const;         ///< since release(); with holes
  std::int64_t peak_in_use() const;  ///< the same without holes
  std::array<std::int64_t, purposes> present_by_purpose() const;
  /// Of a rank with a GPU: as peak(), of its tensors on the host. 0 on CPUs, where peak() is that.
  std::int64_t host_peak() const;
  /// As release_free_memory() of a host. The peaks are then what is present, and there are no
  /// peers.
  void release();

  /// A thread uses a buffer (ops::thread_scratch) of this many bytes.
  void note_scratch(std::size_t slot, std::int64_t bytes);
  std::int64_t scratch() const;  ///< bytes of all buffers of a thread
  static constexpr std::size_t scratch_slots = 8;

  /// A GPU convolves tensors of these shapes.
  void note_convolution(ConvolutionShape shape) { convolutions_.insert(std::move(shape)); }
  const std::set<ConvolutionShape>& convolutions() const { return convolutions_; }

  /// FLOPs, bytes sent and fetched, as a run counts them.
  const trace::Recorder& counted() const { return recorder_; }
  /// A rank of the pretended group with which tensors on devices are exchanged.
  void note_peer(int peer) { peers_.insert(peer); }
  /// Number of these since release().
  std::int64_t peers() const { return std::ssize(peers_); }

  /// Of the operations of one kind (names of spans).
  struct Total {
    std::int64_t count = 0, flops = 0, bytes = 0;
    double seconds = 0;  ///< by the time model
  };
  /// kind: the name of its span, or one of operation_kinds.
  void note_operation(const char* kind, std::int64_t flops, std::int64_t bytes);
  const std::map<std::string_view, Total>& operations() const { return operations_; }

  /// The time so far, predicted by the time model; 0 without one. Operations follow one another;
  /// messages are in transit while the rank computes.
  const Elapsed& elapsed() const { return elapsed_; }
  /// Messages of a rank of a group begin; as TimeModel::exchange. → when they have arrived.
  double begin_exchange(int rank, std::span<const Transfer> transfers);
  /// The rank waits until this time.
  void wait_until(double arrival);

 private:
  friend class DryRun;
  struct Memory;
  Precision precision_;
  trace::Recorder recorder_;
  std::shared_ptr<Memory> device_, host_;  ///< host_: of a GPU's rank
  std::array<std::int64_t, scratch_slots> scratch_{};
  std::set<int> peers_;
  std::map<std::string_view, Total> operations_;
  std::set<ConvolutionShape> convolutions_;
  std::shared_ptr<const TimeModel> times_;
  Elapsed elapsed_;
  double link_free_ = 0;  ///< when all messages so far have arrived
};

/// Counts, in a dry run, bytes that are read and written by what has no span: copies, sums.
inline void note_moved(std::int64_t bytes) {
  if (Ledger* ledger = Ledger::active()) ledger->note_operation(operation_kinds::copy, 0, bytes);
}

/// In its scope this thread's tensors of shapes are counted in a ledger, and what it records goes
/// there, too, at Level::off. Of nested ones the inner one counts.
class DryRun {
 public:
  explicit DryRun(Ledger& ledger);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

 private:
  Ledger* ledger_before_;
  trace::Recorder* recorder_before_;
};

}  // namespace reelmesh
