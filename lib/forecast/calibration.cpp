#include "forecast/calibration.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/background.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/new_file.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "job/host_memory.hpp"
#include "job/machine.hpp"
#include "ops/attention.hpp"
#include "ops/attention_backward.hpp"
#include "ops/convolution.hpp"
#include "ops/group_norm.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "ops/pointwise.hpp"
#include "tensor/gpus.hpp"
#include "tensor/ledger.hpp"
#include "tensor/memory.hpp"
#include "weights/checkpoint.hpp"
#include "weights/writer.hpp"

namespace reelmesh {
namespace {

using Call = std::function<void()>;

// An operation of a kind (Ledger::note_operation), with the bytes that it moves if its kind is one
// of those without a span.
struct Measured {
  const char* kind;
  std::function<Call()> make;  // its operands, and what is timed
  std::int64_t moved = 0;
};

Tensor values(const Shape& shape, DType dtype, Device device, float factor = 1.0F) {
  Tensor t = Tensor::empty(shape, DType::float32);
  std::uint32_t state = 1;
  for (float& x : t.span<float>()) {
    state = state * 1664525U + 1013904223U;
    x = factor * (static_cast<float>(state >> 8) * 0x1p-23F - 1.0F);
  }
  return t.to(dtype).on(device);
}

// What is measured with tensors of one type: sizes from those of a small clip on many ranks to
// those that are large enough for the highest rates.
class Operations {
 public:
  Operations(DType dtype, Device device) : dtype_(dtype), device_(device) {
    products();
    attentions();
    convolutions();
    norms();
    group_norms();
    copies();
  }
  const std::vector<Measured>& all() const { return all_; }

 private:
  Tensor some(const Shape& shape, float factor = 1.0F) const {
    return values(shape, dtype_, device_, factor);
  }
  Tensor floats(const Shape& shape) const { return values(shape, DType::float32, device_); }

  // Calls of layers that are used in turn, as in a model, so that a weight is no longer in a cache
  // when it is needed.
  template <class Layer, class Use>
  static Call in_turn(std::int64_t bytes_of_layer, const std::function<Layer()>& make,
                      const Use& use) {
    constexpr std::int64_t bytes = std::int64_t{1} << 28, max = 12;
    std::vector<Layer> layers;
    do {
      layers.push_back(make());
    } while (std::ssize(layers) < std::min(max, bytes / bytes_of_layer));
    return [use, layers = std::move(layers), next = std::size_t{0}]() mutable {
      use(layers[next]);
      next = (next + 1) % layers.size();
    };
  }

  void product(std::int64_t rows, std::int64_t in, std::int64_t out, ops::Activation activation) {
    all_.push_back({trace::spans::product.name, [=, this] {
                      const Tensor weight = some({out, in}, 0.05F), bias = some({out});
                      return in_turn<ops::Linear>(
                          weight.bytes(), [&] { return ops::Linear(weight, bias, Numerics{}); },
                          [activation, x = some({rows, in})](const ops::Linear& layer) {
                            layer(x, activation);
                          });
                    }});
  }
  // The smallest of each kind shows what a call costs without work.
  void products() {
    constexpr auto none = ops::Activation::none, gelu = ops::Activation::gelu_tanh;
    struct Product {
      std::int64_t rows, in, out;
      ops::Activation activation = none;
    };
    for (const Product& p :
         {Product{16, 32, 32},     {1, 512, 4096},           {2, 512, 11520},    {16, 1152, 1152},
          {64, 1152, 1152},        {64, 4096, 4096},         {720, 16, 512},     {23040, 16, 128},
          {226, 4096, 4096},       {226, 4096, 10240, gelu}, {226, 10240, 4096}, {452, 4096, 1920},
          {512, 1152, 4608, gelu}, {512, 4608, 1152},        {1024, 64, 1920},   {1024, 1920, 1920},
          {1536, 1920, 5760},      {1536, 1920, 7680, gelu}, {1536, 7680, 1920}, {2048, 1920, 64},
          {6144, 1152, 1152}}) {
      product(p.rows, p.in, p.out, p.activation);
    }
  }
  void attentions() {
    // Of many short sequences; with long ones keys come in two parts, as those of other ranks do.
    struct Sequences {
      std::int64_t tokens, batch, heads, channels;
    };
    for (const Sequences& s : {Sequences{16, 1, 2, 32},
                               {16, 256, 16, 72},
                               {64, 32, 16, 72},
                               {226, 1, 64, 64},
                               {256, 16, 16, 72},
                               {640, 2, 15, 64},
                               {1536, 2, 15, 64},
                               {4096, 1, 8, 64}}) {
      const std::int64_t block = ops::Attention::block_keys,
                         first = s.tokens * 2 / 3 / block * block;
      all_.push_back({trace::spans::attention.name, [=, this] {
                        const Tensor q = some({s.tokens, s.batch, s.heads, s.channels});
                        const Tensor kv = some({s.tokens, s.batch, 2, s.heads, s.channels});
                        return [=] {
                          ops::Attention attention(q, 0.125F);
                          if (first > 0) attention.add(kv.rows(0, first));
                          attention.add(kv.rows(first, s.tokens - first));
                          attention.finish();
                        };
                      }});
    }
    for (const Sequences& s :
         {Sequences{16, 1, 2, 32}, {64, 8, 16, 72}, {640, 1, 8, 64}, {1500, 1, 4, 64}}) {
      all_.push_back({trace::spans::attention_backward.name, [=, this] {
                        const Tensor q = some({s.tokens, s.batch, s.heads, s.channels});
                        const Tensor k = some(q.shape()), v = some(q.shape());
                        const ops::AttentionForward forward =
                            ops::attention_forward(q, k, v, 0.125F);
                        return [=, d = some(q.shape())] {
                          ops::attention_backward(q, k, v, forward, d, 0.125F);
                        };
                      }});
    }
  }
  void convolution(std::int64_t in, std::int64_t out, std::int64_t frames_of_kernel,
                   std::int64_t kernel, std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t frames = 2;
    all_.push_back(
        {trace::spans::convolution.name, [=, this] {
           const std::int64_t border = kernel / 2;
           const Tensor weight = some({out, in, frames_of_kernel, kernel, kernel}, 0.02F);
           const Tensor bias = some({out});
           const ops::Window window{kernel, 1, border, border};
           return in_turn<ops::Convolution>(
               weight.bytes(), [&] { return ops::Convolution(weight, bias, Numerics{}, window); },
               [rows, x = some({frames, rows, columns, in})](const ops::Convolution& layer) {
                 layer(x, {0, rows, rows}, {0, rows, rows});
               });
         }});
  }
  void convolutions() {
    convolution(16, 16, 1, 3, 4, 4);
    convolution(16, 512, 3, 3, 12, 20);
    convolution(512, 512, 3, 3, 8, 12);
    convolution(512, 512, 3, 3, 16, 24);
    convolution(256, 512, 3, 3, 16, 24);
    convolution(256, 256, 3, 3, 32, 48);
    convolution(256, 256, 3, 3, 64, 96);
    convolution(128, 128, 3, 3, 64, 96);
    convolution(128, 128, 3, 3, 128, 192);
    convolution(128, 3, 3, 3, 128, 192);
    convolution(512, 512, 1, 3, 16, 16);
    convolution(512, 512, 1, 3, 32, 32);
    convolution(256, 256, 1, 3, 64, 64);
    convolution(128, 128, 1, 3, 128, 128);
    convolution(512, 256, 1, 1, 32, 48);
  }
  void norms() {
    for (const std::int64_t tokens :
         {std::int64_t{32}, std::int64_t{256}, std::int64_t{2048}, std::int64_t{8192}}) {
      all_.push_back({trace::spans::norm.name, [=, this] {
                        constexpr std::int64_t channels = 1920;
                        const Shape shape{tokens, 2, channels};
                        const ops::Modulation modulation{some({1, 6 * channels}), 0, 1, {}};
                        return [=, x = some(shape), out = some(shape),
                                w = floats({channels})]() mutable {
                          ops::modulated_layer_norm(x, w, w, 1e-5F, modulation, out);
                        };
                      }});
      all_.push_back({trace::spans::norm.name, [=, this] {
                        constexpr std::int64_t channels = 64;
                        const Tensor table = floats({tokens, channels}), w = floats({channels});
                        return [=, q = some({tokens, 2, 1, 30, channels})]() mutable {
                          ops::normalise_and_rotate(q, {w, w, 1e-6F}, table, table);
                        };
                      }});
    }
    all_.push_back(
        {trace::spans::norm.name, [this] {
           return [x = some({226, 1, 4096}), w = some({4096})] { ops::rms_norm(x, w, 1e-6F); };
         }});
  }
  void group_norms() {
    constexpr std::int64_t groups = 32;
    // The smallest images have the smallest cells.
    struct Image {
      Shape shape;
      std::int64_t cell;
    };
    for (const Image& image : {Image{{1, 4, 4, 32}, 1},
                               {{1, 8, 12, 512}, 1},
                               {{2, 16, 16, 512}, 1},
                               {{2, 32, 32, 512}, 2},
                               {{2, 64, 96, 256}, 4},
                               {{2, 128, 192, 128}, 8},
                               {{8, 128, 192, 128}, 8}}) {
      const std::int64_t channels = image.shape[3];
      all_.push_back({operation_kinds::group_sums, [=, this] {
                        return
                            [=, x = some(image.shape)] { ops::group_sums(x, groups, image.cell); };
                      }});
      all_.push_back({operation_kinds::group_norm, [=, this] {
                        const Tensor of_groups = floats({groups}), ones = floats({channels});
                        const ops::GroupStatistics statistics{of_groups, of_groups};
                        return [=, x = some(image.shape)] {
                          ops::group_norm(x, statistics, ones, ones, true);
                        };
                      }});
      all_.push_back(
          {operation_kinds::group_norm, [=, this] {
             const Tensor of_groups = floats({groups}), ones = floats({channels});
             const Tensor latents = some({1, image.shape[1] / 2, image.shape[2] / 2, channels});
             const std::vector<std::int64_t> latent_frame(static_cast<std::size_t>(image.shape[0]));
             const ops::SpatialNorm norm{
                 {of_groups, of_groups}, ones, ones, latents, latents, latent_frame};
             return [=, x = some(image.shape), out = some(image.shape)]() mutable {
               ops::spatial_norm_silu(x, norm, out);
             };
           }});
    }
  }
  void copies() {
    for (const std::int64_t elements :
         {std::int64_t{1} << 14, std::int64_t{1} << 18, std::int64_t{1} << 22}) {
      all_.push_back({operation_kinds::copy,
                      [=, this] {
                        return [x = some({elements}), y = some({elements}, 1e-6F)]() mutable {
                          ops::add(x, y);
                        };
                      },
                      3 * elements * size_of(dtype_)});
      all_.push_back({operation_kinds::copy,
                      [=, this] { return [x = some({elements})] { x.clone(); }; },
                      2 * elements * size_of(dtype_)});
    }
  }

  DType dtype_;
  Device device_;
  std::vector<Measured> all_;
};

// Of the times of calls, in seconds: the median, and how far apart the middle half of them is.
struct Timing {
  double median = 0, spread = 0;
};

// Of those calls within `limit` seconds, at least two, after a first one.
Timing timing(double limit, Device device, const Call& call) {
  call();
  synchronize(device);
  std::vector<double> times;
  double all = 0;
  while (all < limit || times.size() < 2) {
    const std::int64_t begin = trace::now_ns();
    call();
    synchronize(device);
    times.push_back(1e-9 * static_cast<double>(trace::now_ns() - begin));
    all += times.back();
  }
  std::ranges::sort(times);
  const double median = (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
  return {median, times[times.size() * 3 / 4] - times[times.size() / 4]};
}

// Measures with the ranks that take part, while all others wait. → the mean of their times.
class Clock {
 public:
  Clock(const comm::Group& world, Device device, bool takes_part)
      : world_(world), device_(device), takes_part_(takes_part) {}

  double time(double limit, const Call& call) {
    return mean([&] {
      const Timing timed = timing(limit, device_, call);
      spreads_.push_back(timed.spread / timed.median);
      return timed.median;
    });
  }
  // The median over what this rank timed, as a share of the median times.
  double spread() {
    if (spreads_.empty()) return 0;
    const auto middle = spreads_.begin() + std::ssize(spreads_) / 2;
    std::ranges::nth_element(spreads_, middle);
    return *middle;
  }
  // The mean of what measure() returns.
  double mean(const std::function<double()>& measure) const {
    world_.barrier();
    const double mine = takes_part_ ? measure() : 0;
    world_.sleeping_barrier();
    return world_.sum(mine) / world_.sum(takes_part_ ? 1.0 : 0.0);
  }

 private:
  const comm::Group& world_;
  Device device_;
  bool takes_part_;
  std::vector<double> spreads_;
};

// A checkpoint of some matrices in bfloat16 for the measurement, which all ranks read. In a new
// folder, of which only what was written is removed.
class WeightFile {
 public:
  // Collective. Error(cannot_create), Error(io).
  WeightFile(const comm::Group& world, const std::filesystem::path& in) {
    comm::run_on_first_rank(world, [&] {
      std::string name = (in / "reelmesh-calibrate-XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) {
        fail(Status::cannot_create, "{}: cannot make a folder for the measurement: {}", in.string(),
             std::strerror(errno));
      }
      folder_ = name;
      made_ = true;
      write();
    });
    folder_ = world.broadcast(folder_.string(), 0);
  }
  ~WeightFile() {
    if (!made_) return;
    std::error_code ignored;
    std::filesystem::remove(file(), ignored);
    std::filesystem::remove(folder_, ignored);
  }
  WeightFile(const WeightFile&) = delete;
  WeightFile& operator=(const WeightFile&) = delete;

  static std::int64_t bytes(DType dtype) { return count_ * numel(shape_) * size_of(dtype); }
  void load(DType dtype, Device device) const {
    const Checkpoint weights = Checkpoint::open(folder_, stem_).on(device);
    std::vector<ops::Linear> layers;  // all are kept, in new memory
    for (int i = 0; i < count_; ++i) {
      layers.emplace_back(weights.load(std::to_string(i), shape_, dtype), Tensor(), Numerics{});
    }
  }
  // Bytes/s of a file that is not in the system's cache, if that can be emptied.
  double read_from_disk() const {
    const Descriptor opened = open_file(file(), O_RDONLY);
    posix_fadvise(opened.get(), 0, 0, POSIX_FADV_DONTNEED);
    std::vector<char> block(std::size_t{1} << 22);
    const std::int64_t begin = trace::now_ns();
    std::int64_t done = 0;
    while (const std::size_t count = read_at(opened.get(), block.data(), block.size(), done)) {
      done += static_cast<std::int64_t>(count);
    }
    return 1e9 * static_cast<double>(done) / static_cast<double>(trace::now_ns() - begin);
  }

 private:
  static constexpr const char* stem_ = "model";
  static constexpr int count_ = 8;  // more than fits a cache
  inline static const Shape shape_{4096, 4096};

  std::filesystem::path file() const { return folder_ / fmt::format("{}.safetensors", stem_); }
  void write() const {
    const Tensor matrix = values(shape_, DType::bfloat16, {}, 0.05F);
    std::vector<TensorToWrite> tensors;
    for (int i = 0; i < count_; ++i) {
      tensors.push_back({std::to_string(i), DType::bfloat16, shape_});
    }
    write_safetensors(folder_, stem_, tensors,
                      [&](std::size_t, Tensor& out) { out.copy_from(matrix); });
  }

  std::filesystem::path folder_;
  bool made_ = false;  // on the rank that removes it
};

// FLOPs and bytes that an operation counts.
TimedOperation counted(const Measured& one, const Call& call) {
  if (one.moved > 0) return {0, static_cast<double>(one.moved), 0};
  const trace::Recorder& recorder = trace::recorder();
  const std::int64_t flops = recorder.flops, bytes = recorder.memory_bytes;
  call();
  return {static_cast<double>(recorder.flops - flops),
          static_cast<double>(recorder.memory_bytes - bytes), 0};
}

DTypeTimes measure(Clock& clock, DType dtype, Device device, const WeightFile& weights) {
  constexpr double limit = 0.05;
  DTypeTimes times;
  const Operations operations(dtype, device);
  std::map<std::string, std::vector<TimedOperation>> known;
  for (const Measured& one : operations.all()) {
    const Call call = one.make();
    TimedOperation timed = counted(one, call);
    timed.seconds = clock.time(limit, call);
    known[one.kind].push_back(timed);
  }
  for (auto& [kind, of_kind] : known) times.operations[kind] = std::move(of_kind);
  const Tensor kernel = values({256, 256, 3, 3, 3}, DType::bfloat16, {}, 0.02F);
  const Tensor bias = values({256}, dtype, device);
  times.load_convolutions =
      static_cast<double>(kernel.numel() * size_of(dtype)) /
      clock.time(limit, [&] { const ops::Convolution layer(kernel.to(dtype).on(device), bias); });
  times.load = static_cast<double>(weights.bytes(dtype)) /
               clock.time(limit, [&] { weights.load(dtype, device); });
  return times;
}

// The rank that this one sends to, and the one that it receives from, if all ranks do so at the
// same time; −1 if there is none.
struct Neighbours {
  int next = -1, previous = -1;
};

// Of the first `count` ranks of each node: the next ones, or of the next node those at the same
// place.
Neighbours neighbours(const std::vector<int>& node_of, int count_of_node, int rank,
                      bool within_node) {
  std::map<int, std::vector<int>> members;
  for (int r = 0; r < std::ssize(node_of); ++r) {
    std::vector<int>& ranks = members[node_of[static_cast<std::size_t>(r)]];
    if (std::ssize(ranks) < count_of_node) ranks.push_back(r);
  }
  std::vector<std::vector<int>> nodes;
  for (auto& [node, ranks] : members) nodes.push_back(std::move(ranks));
  const auto shift = [](std::size_t i, std::size_t by, std::size_t count) {
    return (i + by) % count;
  };
  const std::size_t fewest =
      std::ranges::min(nodes, {}, [](const auto& ranks) { return ranks.size(); }).size();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const auto found = std::ranges::find(nodes[n], rank);
    if (found == nodes[n].end()) continue;
    const auto place = static_cast<std::size_t>(found - nodes[n].begin());
    const std::size_t count = nodes[n].size();
    if (within_node) {
      if (count < 2) return {};
      return {nodes[n][shift(place, 1, count)], nodes[n][shift(place, count - 1, count)]};
    }
    if (nodes.size() < 2) return {};
    const auto& after = nodes[shift(n, 1, nodes.size())];
    const auto& before = nodes[shift(n, nodes.size() - 1, nodes.size())];
    if (place >= fewest) return {};  // so that every rank that sends is also received from
    return {after[place], before[place]};
  }
  return {};
}

std::optional<Link> measure_link(const comm::Group& world, Device device,
                                 const Neighbours& neighbours) {
  const bool takes_part = neighbours.next >= 0;
  if (world.max(std::int64_t{takes_part}) == 0) return std::nullopt;
  // Both ends call equally often.
  const auto time = [&](int count, const Call& call) {
    double mine = 0;
    world.barrier();
    if (takes_part) {
      call();
      const std::int64_t begin = trace::now_ns();
      for (int i = 0; i < count; ++i) call();
      synchronize(device);
      mine = 1e-9 * static_cast<double>(trace::now_ns() - begin) / count;
    }
    world.sleeping_barrier();
    return world.max(mine);
  };
  const auto exchange = [&](const Tensor& out, Tensor& in, const Call& meanwhile) {
    const std::vector sends{comm::Message{neighbours.next, out}};
    const std::vector receives{comm::Message{neighbours.previous, in}};
    comm::PendingMessages pending = world.begin_exchange(sends, receives);
    if (meanwhile) meanwhile();
    pending.finish();
  };
  const auto timed_exchange = [&](std::int64_t bytes, int count, const Call& meanwhile = {}) {
    const Tensor out = values({bytes / 4}, DType::float32, device);
    Tensor in = Tensor::zeros({bytes / 4}, DType::float32, device);
    return time(count, [&] { exchange(out, in, meanwhile); });
  };
  constexpr std::int64_t small = 64, large = std::int64_t{1} << 23;
  Link link;
  link.latency = timed_exchange(small, 200);
  const double alone = timed_exchange(large, 8);
  link.bytes_per_s = static_cast<double>(large) / std::max(alone - link.latency, 1e-9);
  // A product that takes about as long, in parts between which messages make progress.
  constexpr std::int64_t channels = 512;
  const ops::Linear layer(values({channels, channels}, DType::float32, device, 0.05F), {},
                          Numerics{});
  const Tensor x = values({64, channels}, DType::float32, device);
  const double one = time(50, [&] { layer(x); });
  const int parts = std::max(1, static_cast<int>(alone / one));
  const Call compute = [&] {
    for (int i = 0; i < parts; ++i) {
      layer(x);
      background();
    }
  };
  const double computing = time(4, compute);
  const double both = timed_exchange(large, 4, compute);
  link.share =
      std::clamp((both - std::max(alone, computing)) / std::min(alone, computing), 0.0, 1.0);
  return link;
}

// What a node with more threads than cores loses beside their equal shares, 1: nothing. Of ranks
// that compute and exchange in turn, as in a step. place: of this rank on its node.
double measure_crowding(const comm::Group& world, const MachineTimes& machine, int of_node,
                        int threads, const std::vector<int>& node_of, int place) {
  constexpr std::int64_t rows = 1024, channels = 1920, elements = std::int64_t{1} << 19;
  const ops::Linear layer(values({channels, channels}, DType::bfloat16, {}, 0.05F), {}, Numerics{});
  const Tensor x = values({rows, channels}, DType::bfloat16, {});
  const Tensor sent = Tensor::zeros({elements}, DType::float32);
  std::vector<int> peers;  // on this node
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto node = [&](int of) { return node_of[static_cast<std::size_t>(of)]; };
    if (node(rank) == node(world.rank()) && rank != world.rank()) peers.push_back(rank);
  }
  const auto time = [&](int ranks) {
    constexpr int turns = 30;
    std::vector<comm::Message> sends, receives;  // with all of these ranks
    for (std::size_t i = 0; i < peers.size(); ++i) {
      // The others of the node in order, so that the first ones are those that take part.
      if (static_cast<int>(i) >= (place < ranks ? ranks - 1 : 0)) break;
      sends.push_back({peers[i], sent});
      receives.push_back({peers[i], Tensor::zeros({elements}, DType::float32)});
    }
    const auto turn = [&] {
      layer(x);
      world.exchange(sends, receives);
    };
    double mine = 0;
    world.barrier();
    if (place < ranks) {
      turn();
      const std::int64_t begin = trace::now_ns();
      for (int i = 0; i < turns; ++i) turn();
      mine = 1e-9 * static_cast<double>(trace::now_ns() - begin) / turns;
    }
    world.sleeping_barrier();
    return world.max(mine);
  };
  const double fitting = time(machine.together), crowded = time(of_node);
  return std::max(1.0, crowded / (fitting * of_node * threads / machine.cores));
}

// From pinned memory on a GPU; on CPUs weights are read as they are loaded.
Link measure_host(Device device, double load) {
  if (!device.is_cuda()) return {0, load, 1};
  const Tensor host = values({std::int64_t{1} << 24}, DType::float32, device.host());
  Tensor on_device = Tensor::empty(host.shape(), host.dtype(), device);
  const double seconds = timing(0.04, device, [&] { on_device.copy_from(host); }).median;
  return {0, static_cast<double>(host.bytes()) / seconds, 0};
}

// Bytes/s of memory that the process gets from the system and uses for the first time; ranks: of
// the node that measure. On a host as much as a model's weights take: a virtual machine has to get
// memory from its own host first, which is slower.
double measure_touch(Device device, int ranks) {
  constexpr std::int64_t min = std::int64_t{1} << 28, max = std::int64_t{1} << 31;
  const std::int64_t bytes =
      device.is_cuda() ? min : std::clamp(available_host_memory() / (4 * ranks), min, max);
  release_free_memory();
  const std::int64_t begin = trace::now_ns();
  const Tensor new_memory = Tensor::zeros({bytes}, DType::uint8, device);
  synchronize(device);
  return 1e9 * static_cast<double>(bytes) / static_cast<double>(trace::now_ns() - begin);
}

// Bytes/s to a file that is on the disk at the end.
double measure_writing(const std::filesystem::path& folder) {
  NewFile file(folder / "reelmesh-calibrate");  // not committed, so it is removed
  const std::string bytes(std::size_t{1} << 25, 'x');
  const std::int64_t begin = trace::now_ns();
  file.write(bytes);
  flush_to_disk(file.temporary());
  const double seconds = 1e-9 * static_cast<double>(trace::now_ns() - begin);
  return static_cast<double>(bytes.size()) / seconds;
}

// spread: of repeated operations.
void warn_if_busy(double spread) {
  constexpr double quiet = 0.1;
  if (spread <= quiet) return;
  std::array<double, 1> load{};
  const bool known = ::getloadavg(load.data(), 1) == 1;
  log::warning(
      "repeated operations varied by {:.0f} %{}: other programs may use the machine; measure again "
      "when it does nothing else",
      100 * spread, known ? fmt::format(", the load average is {:.1f}", load[0]) : "");
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  gmtime_r(&now, &date);
  std::array<char, 16> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &date)};
}

}  // namespace

MachineTimes measure_machine(const comm::Group& world, Device device, int threads,
                             const std::filesystem::path& folder) {
  const Machine found = find_machine(world);
  const std::vector<int> node_of = gather_nodes(world);
  MachineTimes machine;
  machine.start = world.max(process_age());
  machine.host = world.broadcast(found.host, 0);
  machine.processor = world.broadcast(processor_name(), 0);
  machine.name = machine.host;
  machine.date = today();
  machine.measured = true;
  machine.on_gpu = device.is_cuda();
  machine.multiprocessors = static_cast<int>(world.max(std::int64_t{multiprocessors(device)}));
  machine.threads = threads;
  const int place = world.on_this_host().rank();
  const int of_node = static_cast<int>(world.max(std::int64_t{found.host_ranks}));
  machine.cores = static_cast<int>(-world.max(-std::int64_t{found.host_cores}));
  const bool crowded = !device.is_cuda() && of_node * threads > machine.cores;
  machine.together = crowded ? std::max(1, machine.cores / threads) : of_node;
  machine.source = fmt::format("measured on {} {} with {} {} each", world.size(),
                               world.size() == 1 ? "rank" : "ranks", threads,
                               threads == 1 ? "thread" : "threads");
  trace::Recorder& recorder = trace::recorder();
  const trace::Level level = std::exchange(recorder.level, trace::Level::off);
  std::vector<DType> dtypes{DType::float32, DType::bfloat16};
  if (device.is_cuda()) dtypes.push_back(DType::float16);
  log::info(
      "measuring operations, weights, disk, memory and messages of {} {}: about a minute while the "
      "machine does nothing else",
      world.size(), world.size() == 1 ? "rank" : "ranks");
  double spread = 0;
  const WeightFile weights(world, folder);
  comm::run_on_first_rank(world, [&] { machine.disk = weights.read_from_disk(); });
  machine.disk = world.max(machine.disk);
  for (const DType dtype : dtypes) {
    const auto timed = [&](bool takes_part) {
      Clock clock(world, device, takes_part);
      DTypeTimes times = measure(clock, dtype, device, weights);
      spread = std::max(spread, world.max(clock.spread()));
      return times;
    };
    machine.alone[dtype] = timed(place == 0);
    if (machine.together > 1) machine.shared[dtype] = timed(place < machine.together);
  }
  machine.node =
      measure_link(world, device, neighbours(node_of, machine.together, world.rank(), true));
  machine.network =
      measure_link(world, device, neighbours(node_of, machine.together, world.rank(), false));
  if (crowded) machine.crowded = measure_crowding(world, machine, of_node, threads, node_of, place);
  machine.host_memory = measure_host(device, machine.alone.at(DType::float32).load);
  const Clock clock(world, device, place < machine.together);
  machine.touch = clock.mean([&] { return measure_touch(device, machine.together); });
  double writing = 0;
  comm::run_collectively(world, [&] {
    if (world.rank() == 0) writing = measure_writing(folder);
  });
  machine.write = world.sum(writing);
  warn_if_busy(spread);
  recorder.level = level;
  return machine;
}

}  // namespace reelmesh
