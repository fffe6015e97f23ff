#include "ops/cuda/attention_float.cuh"
#include "ops/cuda/attention_half.cuh"
#include "ops/cuda/attention_wide.hpp"
#include "ops/cuda/ops.hpp"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

// total / sum of each query, rounded once.
template <class T>
struct Finish {
  const float *total, *sum;
  T* out;
  std::uint32_t channels, pairs, queries;  // of a sequence; pairs: batch items · heads
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, channels);
    const std::uint32_t row = element.row / pairs,
                        pair = row / queries * pairs + element.row % pairs;
    const float divisor = sum[std::int64_t{pair} * queries + row % queries];
    float v[W];
    load<W>(total + at, v);
    for (int i = 0; i < W; ++i) v[i] = v[i] / divisor;
    store<W>(v, out + at);
  }
};

// log_sum_exp of a query. unit: what `largest` is multiplied by to be a binary logarithm.
struct LogSumExp {
  float* out;
  const float *largest, *sum;
  float unit;
  template <int W>
  __device__ void run(std::int64_t at) const {
    float l[W], s[W];
    load<W>(largest + at, l);
    load<W>(sum + at, s);
    for (int i = 0; i < W; ++i) s[i] = fmaf(l[i], unit, log2f(s[i]));
    store<W>(s, out + at);
  }
};

constexpr std::int64_t max_head_channels = 128;  // channels of a head

// Calls f(D, M). D: channels of a head, rounded up to a size that kernels are compiled for. M: more
// queries per block (HalfAttention) where registers allow it.
template <class F>
void visit_head(std::int64_t channels, F&& f) {
  using std::integral_constant;
  if (channels <= 64) return f(integral_constant<int, 64>(), integral_constant<int, 2>());
  if (channels <= 80) return f(integral_constant<int, 80>(), integral_constant<int, 1>());
  f(integral_constant<int, max_head_channels>(), integral_constant<int, 1>());
}

class Work final : public ops::Attention::Work {
 public:
  Work(const ops::Rows& queries, float scale, Tensor bias, Tensor log_sum_exp)
      : queries_(queries),
        bias_(std::move(bias)),
        log_sum_exp_(std::move(log_sum_exp)),
        scale_(scale) {
    require_tensor_cores(queries.tensor.dtype(), device());
    const Shape& shape = queries.tensor.shape();
    total_ = Tensor::empty({shape[0], shape[1], shape[3], shape[4]}, DType::float32, device());
    largest_ = Tensor::empty({queries.sequences * shape[1] * shape[3], queries.count()},
                             DType::float32, device());
    sum_ = Tensor::empty(largest_.shape(), DType::float32, device());
  }

  void add(const ops::Rows& keys, const ops::Rows& values) override {
    const std::int64_t count = keys.count();
    expect(keys_ % ops::Attention::block_keys == 0, "add() after {} keys, expected whole blocks",
           keys_);
    if (count > 0 && !total_.empty()) {
      const AttentionArguments p = arguments(keys, values);
      visit_head(total_.shape(3), [&](auto head, auto more) {
        constexpr int D = decltype(head)::value, M = decltype(more)::value;
        switch (queries_.tensor.dtype()) {
          case DType::float32:
            return run("attention in float32", p, attend_float<D>, FloatAttention<D>::tile,
                       FloatAttention<D>::shared_bytes);
          case DType::bfloat16:
            return run("attention in bfloat16", p, attend_half<BFloat16, D, M>,
                       HalfAttention<D, M>::rows, HalfAttention<D, M>::shared_bytes);
          default:
            return run("attention in float16", p, attend_half<Float16, D, M>,
                       HalfAttention<D, M>::rows, HalfAttention<D, M>::shared_bytes);
        }
      });
    }
    keys_ += count;
  }

  Tensor finish() override {
    expect(keys_ > 0 || total_.empty(), "attention without keys");
    Tensor out = Tensor::empty(total_.shape(), queries_.tensor.dtype(), device());
    const std::int64_t channels = total_.shape(3);
    visit_float(out.dtype(), [&](auto type) {
      using T = decltype(type);
      const auto* total = address<float>(total_, device());
      T* into = address<T>(out, device());
      for_packs<T>("finish attention", device(), out.numel(), channels, {total, into},
                   Finish<T>{total, address<float>(sum_, device()), into, narrow_index(channels),
                             narrow_index(total_.shape(1) * total_.shape(2)),
                             narrow_index(queries_.count())});
    });
    if (!log_sum_exp_.empty()) write_log_sum_exp();
    return out;
  }

 private:
  Device device() const { return queries_.tensor.device(); }

  void write_log_sum_exp() {
    const LogSumExp f{address<float>(log_sum_exp_, device()), address<float>(largest_, device()),
                      address<float>(sum_, device()),
                      queries_.tensor.dtype() == DType::float32 ? log2_e : 1.0F};
    for_packs<float>("logarithms of sums", device(), log_sum_exp_.numel(), log_sum_exp_.numel(),
                     {f.out, f.largest, f.sum}, f);
  }

  // Address of the first row of a part of [sequence · row, batch, part, head, channel].
  const void* part_address(const ops::Rows& rows) const {
    const std::int64_t part = rows.tensor.shape(3) * rows.tensor.shape(4);
    return static_cast<const std::byte*>(rows.tensor.address_on(device())) +
           rows.part * part * size_of(rows.tensor.dtype());
  }

  AttentionArguments arguments(const ops::Rows& keys, const ops::Rows& values) {
    const Shape &q = queries_.tensor.shape(), &k = keys.tensor.shape();
    AttentionArguments p{};
    p.queries = part_address(queries_);
    p.keys = part_address(keys);
    p.values = part_address(values);
    p.query_batch = q[2] * q[3] * q[4];
    p.query_row = q[1] * p.query_batch;
    p.key_batch = k[2] * k[3] * k[4];
    p.key_row = k[1] * p.key_batch;
    p.total = address<float>(total_, device());
    p.largest = address<float>(largest_, device());
    p.sum = address<float>(sum_, device());
    p.bias = bias_.empty() ? nullptr : address<float>(bias_, device()) + keys_;
    p.bias_keys = bias_.empty() ? 0 : bias_.shape(2);
    p.query_count = static_cast<int>(queries_.count());
    p.key_count = static_cast<int>(keys.count());
    p.batch = static_cast<int>(q[1]);
    p.heads = static_cast<int>(q[3]);
    p.channels = static_cast<int>(q[4]);
    p.scale = scale_;
    p.log2_unit = bias_.empty() ? scale_ * log2_e : 1.0F;
    p.first = keys_ == 0;
    p.aligned = p.channels % 8 == 0 && gpu::aligned(p.keys) && gpu::aligned(p.values);
    return p;
  }

  template <class Kernel>
  void run(const char* name, const AttentionArguments& p, Kernel kernel, int rows,
           std::int64_t shared_bytes) const {
    const std::int64_t tiles = blocks_for(p.query_count, rows);
    launch({name, device(), tiles * largest_.shape(0), 128, shared_bytes}, kernel, p);
  }

  ops::Rows queries_;
  Tensor bias_;
  Tensor log_sum_exp_;
  float scale_;
  Tensor total_, largest_, sum_;  // shapes as in AttentionArguments
  std::int64_t keys_ = 0;         // keys of a sequence added so far
};

}  // namespace

std::unique_ptr<ops::Attention::Work> attention_work(const ops::Rows& queries, float scale,
                                                     const Tensor& bias, const Numerics& numerics,
                                                     Tensor log_sum_exp) {
  if (queries.tensor.shape(4) > max_head_channels) {
    expect(log_sum_exp.empty(), "logarithms of sums for heads of {} channels",
           queries.tensor.shape(4));
    return wide_attention_work(queries, scale, bias, numerics);
  }
  return std::make_unique<Work>(queries, scale, bias, std::move(log_sum_exp));
}

}  // namespace reelmesh::gpu
