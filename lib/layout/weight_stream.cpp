#include "layout/weight_stream.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "base/log.hpp"
#include "base/trace.hpp"
#include "comm/shared_memory.hpp"
#include "comm/together.hpp"
#include "ops/parallel.hpp"
#include "tensor/cuda/host_copy.hpp"
#include "tensor/cuda/runtime.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

// Fetches in flight at a time. With more than 8, NCCL's transport lets the host wait for the
// device.
constexpr std::size_t max_fetches = 6;

}  // namespace

// Offsets of blocks in a buffer. Blocks are freed in the order in which they were taken.
class FetchRing {
 public:
  explicit FetchRing(std::int64_t bytes = 0) : bytes_(bytes) {}
  static std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

  // The offset of a new block of aligned(bytes) > 0; nullopt if there is no room for it.
  std::optional<std::int64_t> take(std::int64_t bytes) {
    bytes = aligned(bytes);
    std::int64_t begin = 0, limit = bytes_;
    if (!blocks_.empty()) {
      const std::int64_t oldest = blocks_.front().begin, end = blocks_.back().end;
      const bool wrapped = end <= oldest;
      begin = wrapped || end + bytes <= bytes_ ? end : 0;
      if (wrapped || begin == 0) limit = oldest;
    }
    if (begin + bytes > limit) return std::nullopt;
    blocks_.push_back({begin, begin + bytes});
    return begin;
  }
  void free_oldest() { blocks_.pop_front(); }

 private:
  struct Block {
    std::int64_t begin, end;
  };
  std::int64_t bytes_;
  std::deque<Block> blocks_;
};

struct StreamedLayer {
  ops::LinearForm form;
  ops::WeightRows weight;
  // On a GPU, of weight.float8: float32 [256], [row].
  Tensor values, factors;
};

// Units [first, first + count) of a weight, which are fetched together, and what this rank keeps of
// them.
struct StoredUnits {
  std::shared_ptr<const StreamedLayer> layer;
  std::int64_t first = 0, count = 0;
  bool plain = false;   ///< fetched as rows of the weight, not packed
  bool float8 = false;  ///< kept and fetched in 8 bits; then plain
  std::int64_t first_kept = 0, count_kept = 0;
  Tensor kept;                        ///< values of the units that this rank keeps
  std::vector<std::int64_t> borders;  ///< of the ranks' shares, in elements; none: not shared
  // All values. Before `pinned`, which is therefore released first, while this is still mapped.
  std::shared_ptr<std::byte> on_host;
  std::shared_ptr<const void> pinned;

  // The first element of a unit, in the form in which the part is fetched.
  std::int64_t element(std::int64_t unit) const {
    const ops::LinearForm& form = layer->form;
    return plain ? (form.row(unit) - form.row(first)) * form.in()
                 : form.offset(unit) - form.offset(first);
  }
  std::int64_t elements() const { return element(first + count); }
  DType dtype() const { return float8 ? DType::uint8 : layer->form.dtype(); }
  std::int64_t bytes() const { return elements() * size_of(dtype()); }
  bool fetched() const { return !borders.empty() || on_host != nullptr; }
};

// One use of them in a pass.
struct FetchedUnits : StoredUnits {
  // Set while it is fetched and used.
  Tensor buffer;
  comm::PendingMessages messages;
  cuda::HostCopy copy;
};

namespace {

// Reads rows [first, first + count) of a part to dense host memory, with all threads.
void read_rows(const StoredUnits& part, const ops::WeightRows& weight, std::int64_t first,
               std::int64_t count, void* into) {
  constexpr std::int64_t piece_bytes = 256 << 10;
  const std::int64_t row_bytes = weight.in * size_of(part.dtype());
  const std::int64_t some = std::max<std::int64_t>(1, piece_bytes / row_bytes);
  ops::parallel_for((count + some - 1) / some, 1, [&](std::int64_t i) {
    const std::int64_t begin = i * some, n = std::min(some, count - begin);
    std::byte* target = static_cast<std::byte*>(into) + begin * row_bytes;
    if (part.float8) return weight.float8->read(first + begin, n, target);
    weight.read(first + begin, n, target, weight.in);
  });
}

}  // namespace

class WeightStream::State {
 public:
  explicit State(const WeightPlacement& placement) : placement_(placement) {
    if (placement.residence == Residence::sharded) {
      messages_ = placement.group.independent();
      const auto ranks = static_cast<std::size_t>(messages_.size());
      bytes_before_.resize(ranks);
      if (placement_.shares.empty()) placement_.shares.assign(ranks, 1);
    }
  }

  // Adds the parts of a layer; returns the index of the first.
  std::size_t add(const ops::LinearForm& form, const ops::WeightRows& weight);
  // The same parts once more; returns the index of the first.
  std::size_t again(std::size_t first, std::size_t end);
  std::size_t size() const { return parts_.size(); }
  // Replaces the values of these parts, which are those of a layer.
  void set_together(std::size_t first, std::size_t end, const ops::WeightRows& weight);
  bool capturable() const { return !messages_.member() || messages_.capturable(); }
  const FetchedUnits& part(std::size_t index) const { return parts_[index]; }

  // The values of a part as LinearForm::pack gives them, for use until release().
  Tensor acquire(std::size_t index);
  void release(std::size_t index);

 private:
  void keep(FetchedUnits& part);
  void keep_share(FetchedUnits& part);
  void keep_on_host(FetchedUnits& part);
  void read(FetchedUnits& part, const ops::WeightRows& weight);
  void read_to_host(FetchedUnits& part, const ops::WeightRows& weight);
  Tensor unpacked(const FetchedUnits& part) const;
  void begin_fetch(FetchedUnits& part);
  void fetch_ahead();
  void restart(std::size_t index);
  void report_wrong_order(std::size_t index);
  void end_pass();

  WeightPlacement placement_;
  comm::Group messages_;  // sharded
  comm::Group host_;      // on a GPU: the ranks that share host memory
  std::vector<FetchedUnits> parts_;
  std::vector<std::int64_t> bytes_before_;  // for each rank: in the shares of the ranks before it
  std::int64_t shared_bytes_ = 0, largest_ = 0;
  double resident_due_ = 0;  // bytes that are still to be kept whole

  // Of the current pass.
  bool in_use_ = false;  // a part is acquired and not released
  bool warned_ = false;  // of a wrong order
  Tensor window_;
  FetchRing ring_;
  std::size_t next_ = 0;     // the part that is used next
  std::size_t begun_ = 0;    // the first part whose fetch has not begun
  std::size_t pending_ = 0;  // parts that are in the window
};

std::size_t WeightStream::State::add(const ops::LinearForm& form, const ops::WeightRows& weight) {
  expect(next_ == 0 && begun_ == 0, "a layer is added to a stream in use");
  const auto layer = std::make_shared<StreamedLayer>(StreamedLayer{form, weight, {}, {}});
  if (weight.float8 != nullptr && form.device().is_cuda()) {
    const Device host = form.device().host();
    const auto on_device = [&](std::span<const float> values, std::int64_t count) {
      Tensor numbers = Tensor::empty({count}, DType::float32, host);
      if (!host.only_shapes) std::ranges::copy(values, numbers.data<float>());
      return numbers.on(form.device());
    };
    layer->values = on_device(*weight.float8->values, std::ssize(*weight.float8->values));
    layer->factors = on_device(weight.float8->factors, weight.out);
  }
  const std::size_t before = parts_.size();
  const std::int64_t units = form.units(), size = size_of(form.dtype());
  std::int64_t first = 0;
  while (first < units) {
    std::int64_t end = first + 1;
    if (form.device().is_cuda()) end = units;
    while (end < units && (form.offset(end + 1) - form.offset(first)) * size <= max_part_bytes) {
      ++end;
    }
    FetchedUnits& part = parts_.emplace_back();
    part.layer = layer;
    part.first = first;
    part.count = end - first;
    keep(part);
    if (part.fetched()) largest_ = std::max(largest_, FetchRing::aligned(part.bytes()));
    first = end;
  }
  // It is only read again where it stays in the file; it may hold all values.
  if (placement_.residence == Residence::sharded || form.device().is_cuda()) {
    layer->weight.read = {};
  }
  return before;
}

std::size_t WeightStream::State::again(std::size_t first, std::size_t end) {
  expect(next_ == 0 && begun_ == 0, "a layer is added to a stream in use");
  const std::size_t before = parts_.size();
  for (std::size_t i = first; i < end; ++i) {
    const StoredUnits stored = parts_[i];
    static_cast<StoredUnits&>(parts_.emplace_back()) = stored;
  }
  return before;
}

void WeightStream::State::set_together(std::size_t first, std::size_t end,
                                       const ops::WeightRows& weight) {
  const ops::LinearForm& form = parts_[first].layer->form;
  expect(!parts_[first].float8 && (placement_.residence == Residence::sharded ||
                                   form.device().is_cuda() || form.device().only_shapes),
         "weights that stay as they are in a file are given other values");
  if (next_ > 0 || begun_ > 0) restart(0);  // what was fetched ahead has the values before
  if (host_.member()) {
    if constexpr (cuda_built) cuda::synchronize(form.device());
    host_.barrier();  // no rank's GPU reads them
  }
  for (std::size_t i = first; i < end; ++i) read(parts_[i], weight);
}

void WeightStream::State::keep(FetchedUnits& part) {
  const bool on_gpu = part.layer->form.device().is_cuda();
  // Processors that have them in a file read them there.
  part.float8 = part.layer->weight.float8 != nullptr &&
                (on_gpu || placement_.residence == Residence::sharded);
  part.plain = part.float8;
  const auto bytes = static_cast<double>(part.bytes());
  resident_due_ += placement_.resident * bytes;
  const bool alone = placement_.residence == Residence::sharded && messages_.size() == 1;
  if (alone || resident_due_ >= bytes) {
    resident_due_ -= alone ? 0 : bytes;
    part.first_kept = part.first;
    part.count_kept = part.count;
  } else if (placement_.residence == Residence::sharded) {
    part.plain = part.float8 || (placement_.unlike_processors && !on_gpu);
    keep_share(part);
  } else if (on_gpu) {
    return keep_on_host(part);
  }
  const std::int64_t elements =
      part.element(part.first_kept + part.count_kept) - part.element(part.first_kept);
  part.kept = Tensor::empty({elements}, part.dtype(), part.layer->form.device());
  read(part, part.layer->weight);
}

// Divides the units among the ranks such that, of all parts so far, each has its share as exactly
// as units allow.
void WeightStream::State::keep_share(FetchedUnits& part) {
  const auto ranks = static_cast<std::size_t>(messages_.size());
  const std::int64_t size = size_of(part.dtype()), end = part.first + part.count;
  shared_bytes_ += part.bytes();
  double all = 0, before = 0;
  for (const double share : placement_.shares) all += share;
  std::vector<std::int64_t> units{part.first};  // the first unit of each rank
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    before += placement_.shares[rank - 1];
    const double due = before / all * static_cast<double>(shared_bytes_) -
                       static_cast<double>(bytes_before_[rank]);
    const auto distance = [&](std::int64_t unit) {
      return static_cast<double>(part.element(unit) * size) - due;
    };
    std::int64_t low = units.back(),
                 high = end;  // the first unit at or after the element that is due
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (distance(middle) < 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low > units.back() && (low > end || -distance(low - 1) < distance(low))) --low;
    units.push_back(low);
    bytes_before_[rank] += part.element(low) * size;
  }
  units.push_back(end);
  for (const std::int64_t unit : units) part.borders.push_back(part.element(unit));

  const auto me = static_cast<std::size_t>(messages_.rank());
  part.first_kept = units[me];
  part.count_kept = units[me + 1] - units[me];
}

// Reads what this rank keeps.
void WeightStream::State::read(FetchedUnits& part, const ops::WeightRows& weight) {
  if (part.on_host != nullptr) return read_to_host(part, weight);
  const ops::LinearForm& form = part.layer->form;
  if (!part.plain) return form.pack(weight, part.first_kept, part.count_kept, part.kept);
  if (form.device().only_shapes) return;
  const std::int64_t row = form.row(part.first_kept), row_bytes = form.in() * size_of(part.dtype());
  if constexpr (cuda_built) {
    if (form.device().is_cuda()) {
      const auto fill = [&](void* host, std::int64_t offset, std::int64_t count) {
        read_rows(part, weight, row + offset / row_bytes, count / row_bytes, host);
      };
      return cuda::upload(form.device(), part.kept.address_on(form.device()), part.kept.bytes(),
                          row_bytes, fill);
    }
  }
  read_rows(part, weight, row, form.row(part.first_kept + part.count_kept) - row, part.kept.raw());
}

void WeightStream::State::keep_on_host(FetchedUnits& part) {
  if (part.layer->form.device().only_shapes) {
    part.on_host = std::make_shared<std::byte>();  // nobody reads it
    return;
  }
  if (!host_.member()) host_ = placement_.group.on_this_host();
  part.on_host = comm::shared_memory(host_, part.bytes());
  read_to_host(part, part.layer->weight);
  if constexpr (cuda_built) {
    part.pinned = cuda::pin(part.layer->weight.device, part.on_host.get(), part.bytes());
  }
}

// The ranks of a host share the work of reading.
void WeightStream::State::read_to_host(FetchedUnits& part, const ops::WeightRows& weight) {
  if (part.layer->form.device().only_shapes) return;
  const auto border = [&](int rank) { return cut_offset(weight.out, host_.size(), rank); };
  const std::int64_t row = border(host_.rank());
  comm::run_collectively(host_, [&] {
    read_rows(part, weight, row, border(host_.rank() + 1) - row,
              part.on_host.get() + row * weight.in * size_of(part.dtype()));
  });
}

void WeightStream::State::begin_fetch(FetchedUnits& part) {
  trace::recorder().bytes_fetched += part.bytes() - part.kept.bytes();
  if (part.on_host != nullptr) {
    if (part.buffer.device().only_shapes) return;
    if constexpr (cuda_built) {
      const Device device = part.buffer.device();
      part.copy = {device, part.buffer.address_on(device), part.on_host.get(), part.bytes()};
    }
    return;
  }
  const int me = messages_.rank(), ranks = messages_.size();
  const auto share = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return part.buffer.rows(part.borders[r], part.borders[r + 1] - part.borders[r]);
  };
  share(me).copy_from(part.kept);
  std::vector<comm::Message> sends, receives;
  for (int i = 1; i < ranks; ++i) {
    sends.push_back({(me + i) % ranks, part.kept});
    const int from = (me + ranks - i) % ranks;
    receives.push_back({from, share(from)});
  }
  part.messages = messages_.begin_exchange(sends, receives);
}

// Begins fetches in the order of use, as long as the window has room.
void WeightStream::State::fetch_ahead() {
  for (; begun_ < parts_.size(); ++begun_) {
    FetchedUnits& part = parts_[begun_];
    if (!part.fetched()) continue;
    if (window_.empty()) {
      const PurposeScope purpose(Purpose::exchange);
      window_ = Tensor::empty({fetch_window(largest_)}, DType::uint8, part.layer->form.device());
      ring_ = FetchRing(window_.bytes());
    }
    if (pending_ == max_fetches) return;
    const auto offset = ring_.take(part.bytes());
    if (!offset) return;
    ++pending_;
    part.buffer = window_.view_bytes(*offset, {part.elements()}, part.dtype());
    begin_fetch(part);
  }
}

// Gives up what was fetched, but not used, by a pass that has ended early.
void WeightStream::State::restart(std::size_t index) {
  for (FetchedUnits& part : parts_) {
    part.messages.finish();
    if constexpr (cuda_built) part.copy.finish();
    part.buffer = {};
  }
  end_pass();
  next_ = begun_ = index;
}

void WeightStream::State::end_pass() {
  window_ = {};
  in_use_ = false;
  next_ = begun_ = pending_ = 0;
}

void WeightStream::State::report_wrong_order(std::size_t index) {
  const auto text =
      fmt::format("weights of a layer (part {} of {}) are used where those of part {} are expected",
                  index, parts_.size(), next_);
  if (wrong_order_is_error) fail(Status::internal, "{}", text);
  if (!std::exchange(warned_, true)) {
    log::warning("{}: from here on each is waited for. Please report it", text);
  }
}

Tensor WeightStream::State::acquire(std::size_t index) {
  if (index != next_ || in_use_) {
    if (index != 0) report_wrong_order(index);
    restart(index);
  }
  in_use_ = true;
  fetch_ahead();
  FetchedUnits& part = parts_[index];
  if (!part.fetched() && !part.plain && !part.kept.empty()) return part.kept;
  const trace::Scope scope(trace::spans::weights);
  if (part.fetched()) {
    part.messages.finish();
    if constexpr (cuda_built) part.copy.finish();
    fetch_ahead();
    if (!part.plain) return part.buffer;
  }
  const PurposeScope purpose(Purpose::weights);
  if (part.plain) return unpacked(part);
  trace::recorder().bytes_fetched += part.bytes();
  const StreamedLayer& layer = *part.layer;
  return layer.form.pack(layer.weight, part.first, part.count);
}

// The values of a plain part, as LinearForm::pack gives them.
Tensor WeightStream::State::unpacked(const FetchedUnits& part) const {
  const StreamedLayer& layer = *part.layer;
  const ops::LinearForm& form = layer.form;
  const Tensor& stored = part.fetched() ? part.buffer : part.kept;
  const std::int64_t first_row = form.row(part.first), in = form.in();
  if (form.device().is_cuda()) {
    return expand_float8(stored.reshape({part.count, in}), layer.values, layer.factors,
                         form.dtype())
        .reshape({stored.numel()});
  }
  ops::WeightRows rows = layer.weight;
  rows.read = [&](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
    const std::int64_t row_bytes = in * size_of(part.dtype());
    for (std::int64_t row = first; row < first + count; ++row) {
      const std::byte* from =
          static_cast<const std::byte*>(stored.raw()) + (row - first_row) * row_bytes;
      std::byte* to =
          static_cast<std::byte*>(into) + (row - first) * stride * size_of(form.dtype());
      if (part.float8) {
        const Float8Rows& float8 = *layer.weight.float8;
        convert_float8(*float8.values, float8.factors[static_cast<std::size_t>(row)], from, to,
                       form.dtype(), in);
      } else {
        std::memcpy(to, from, static_cast<std::size_t>(row_bytes));
      }
    }
  };
  return form.pack(rows, part.first, part.count);
}

void WeightStream::State::release(std::size_t index) {
  FetchedUnits& part = parts_[index];
  if (part.fetched()) {
    part.buffer = {};
    ring_.free_oldest();
    --pending_;
  }
  in_use_ = false;
  next_ = index + 1;
  if (next_ == parts_.size()) {
    end_pass();
  } else {
    fetch_ahead();
  }
}

// The parts of one layer.
class WeightStream::Source final : public ops::WeightSource {
 public:
  Source(std::shared_ptr<State> state, std::size_t first)
      : state_(std::move(state)), first_(first), end_(state_->size()) {}

  std::shared_ptr<const Source> again() const {
    const std::size_t first = state_->again(first_, end_);
    return std::make_shared<const Source>(state_, first);
  }

  void set_together(const ops::WeightRows& weight) const override {
    state_->set_together(first_, end_, weight);
  }

  void visit(const Use& use) const override {
    for (std::size_t i = first_; i < end_; ++i) {
      const Tensor values = state_->acquire(i);
      use(state_->part(i).first, state_->part(i).count, values);
      state_->release(i);
    }
  }

 private:
  std::shared_ptr<State> state_;
  std::size_t first_, end_;
};

WeightStream::WeightStream(const WeightPlacement& placement) {
  if (placement.residence != Residence::replicated) state_ = std::make_shared<State>(placement);
}

WeightStream::~WeightStream() = default;

bool WeightStream::capturable() const { return state_ == nullptr || state_->capturable(); }

ops::Linear WeightStream::add(const ops::WeightRows& weight, const Tensor& bias) {
  if (state_ == nullptr) return ops::Linear(weight, bias);
  const ops::LinearForm form(weight.in, weight.out, weight.dtype, weight.device);
  const std::size_t first = state_->add(form, weight);
  return {form, std::make_shared<const Source>(state_, first), bias, weight.numerics};
}

ops::Linear WeightStream::again(const ops::Linear& layer) {
  if (state_ == nullptr) return layer;
  const auto source = std::dynamic_pointer_cast<const Source>(layer.source());
  expect(source != nullptr, "a layer of another stream");
  return layer.from(source->again());
}

}  // namespace reelmesh
