// Attention for heads with more channels than the other kernels support, such as the single head of
// 512 channels in image autoencoders. Stores whole rows of scores for 1024 queries at a time; GEMMs
// in float32. A query's bits depend only on the query and on all keys in their order.
#include <algorithm>
#include <vector>

#include "ops/cuda/attention_wide.hpp"
#include "ops/cuda/linear.hpp"
#include "tensor/cuda/strided_copy.hpp"

namespace reelmesh::gpu {
namespace {

constexpr std::int64_t queries_at_once = 1024;

class WideWork final : public ops::Attention::Work {
 public:
  WideWork(const ops::Rows& queries, float scale, Tensor bias, const Numerics& numerics)
      : queries_(queries), bias_(std::move(bias)), scale_(scale), numerics_(numerics) {}

  void add(const ops::Rows& keys, const ops::Rows& values) override {
    if (keys.count() == 0) return;
    keys_.push_back(by_head(keys));
    values_.push_back(by_head(values));
  }

  Tensor finish() override {
    const Shape& shape = queries_.tensor.shape();
    const std::int64_t count = queries_.count(), channels = shape[4];
    const std::int64_t pairs = shape[1] * shape[3];  // of one sequence
    Tensor out = Tensor::empty({shape[0], shape[1], shape[3], channels}, DType::float32,
                               queries_.tensor.device());
    if (out.empty()) return out.to(queries_.tensor.dtype());
    expect(!keys_.empty(), "attention without keys");
    const Tensor queries = by_head(queries_);
    const auto product = [&](const Tensor& x, const Tensor& weight) {
      return linear(x, weight, ops::Pass::forward, {}, ops::Activation::none, numerics_,
                    ops::Linear::usual_rows);
    };
    for (std::int64_t pair = 0; pair < queries_.sequences * pairs; ++pair) {
      const Tensor keys = joined(keys_, pair, false), values = joined(values_, pair, true);
      for (std::int64_t first = 0; first < count; first += queries_at_once) {
        const std::int64_t some = std::min(queries_at_once, count - first);
        Tensor scores =
            product(queries.rows(pair, 1).reshape({count, channels}).rows(first, some), keys);
        const Tensor bias =
            bias_.empty() ? bias_ : bias_.rows(pair % shape[3], 1).reshape({count, keys.shape(0)});
        softmax_rows(scores, scale_, bias.empty() ? bias : bias.rows(first, some));
        const Tensor attended = product(scores, values);
        copy_strided({2,
                      {some, channels},
                      {channels, 1},
                      {pairs * channels, 1},
                      0,
                      ((pair / pairs * count + first) * pairs + pair % pairs) * channels},
                     attended, out);
      }
    }
    return out.to(queries_.tensor.dtype());
  }

 private:
  // Transposes a part of [sequence · row, batch, part, head, channel] to float32 [sequence · batch
  // · head, row, channel].
  static Tensor by_head(const ops::Rows& rows) {
    const Shape& s = rows.tensor.shape();
    const std::int64_t sequences = rows.sequences, count = rows.count();
    Tensor out = Tensor::empty({sequences * s[1] * s[3], count, s[4]}, rows.tensor.dtype(),
                               rows.tensor.device());
    const std::int64_t token = s[1] * s[2] * s[3] * s[4], item = s[2] * s[3] * s[4];
    const std::int64_t head = count * s[4];  // of the result
    if (!out.empty()) {
      copy_strided({5,
                    {sequences, s[1], s[3], count, s[4]},
                    {count * token, item, s[4], token, 1},
                    {s[1] * s[3] * head, s[3] * head, head, s[4], 1},
                    rows.part * s[3] * s[4],
                    0},
                   rows.tensor, out);
    }
    return out.to(DType::float32);
  }

  // All rows of a pair, concatenated over add() calls: [row, channel]; if turned [channel, row].
  static Tensor joined(const std::vector<Tensor>& additions, std::int64_t pair, bool turned) {
    std::int64_t count = 0, before = 0;
    for (const Tensor& addition : additions) count += addition.shape(1);
    const Tensor& first = additions.front();
    const std::int64_t channels = first.shape(2);
    const std::int64_t row = turned ? 1 : channels, channel = turned ? count : 1;
    Tensor out = Tensor::empty(turned ? Shape{channels, count} : Shape{count, channels},
                               DType::float32, first.device());
    for (const Tensor& addition : additions) {
      const std::int64_t rows = addition.shape(1);
      copy_strided({2,
                    {rows, channels},
                    {channels, 1},
                    {row, channel},
                    pair * rows * channels,
                    before * row},
                   addition, out);
      before += rows;
    }
    return out;
  }

  ops::Rows queries_;
  Tensor bias_;
  float scale_;
  Numerics numerics_;
  std::vector<Tensor> keys_, values_;  // one for each add(), from by_head
};

}  // namespace

std::unique_ptr<ops::Attention::Work> wide_attention_work(const ops::Rows& queries, float scale,
                                                          const Tensor& bias,
                                                          const Numerics& numerics) {
  return std::make_unique<WideWork>(queries, scale, bias, numerics);
}

}  // namespace reelmesh::gpu
