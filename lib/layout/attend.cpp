#include "layout/attend.hpp"

#include <cstring>

#include "ops/attention.hpp"

namespace reelmesh {
namespace {

// Appends axes that are whole on every rank that holds something.
Layout with_axes(Layout layout, const Shape& extents) {
  for (const std::int64_t extent : extents)
    layout = layout.with_axis(layout.global().size(), extent);
  return layout;
}

}  // namespace

Attend::Attend(const comm::Group& group, const std::vector<Layout>& segments,
               const Geometry& geometry)
    : geometry_(geometry) {
  const auto [batch, heads, channels] = geometry;
  std::vector<Move> to_heads, to_tokens;
  for (const Layout& tokens : segments) {
    side_.mine.push_back(tokens.box(group.rank()).numel());
    side_.total.push_back(numel(tokens.global()));
    const std::size_t axes = tokens.global().size();
    const Layout qkv = with_axes(tokens, {batch, 3, heads, channels});
    const Layout out = with_axes(tokens, {batch, heads, channels});
    to_heads.push_back({qkv, Layout::cut(qkv.global(), axes + 2, group.size())});
    to_tokens.push_back({Layout::cut(out.global(), axes + 1, group.size()), out});
  }
  side_.heads = cut_offset(heads, group.size(), group.rank() + 1) -
                cut_offset(heads, group.size(), group.rank());
  if (group.size() == 1) return;
  to_heads_.emplace(group, std::move(to_heads));
  to_tokens_.emplace(group, std::move(to_tokens));
}

std::int64_t Attend::sent_elements() const {
  return to_heads_ ? to_heads_->sent_elements() + to_tokens_->sent_elements() : 0;
}

Tensor Attend::operator()(const Tensor& qkv, float scale) const {
  if (!to_heads_) return ops::attention(qkv, scale);
  const auto [batch, heads, channels] = geometry_;
  const auto segments = [](const Tensor& x, const std::vector<std::int64_t>& counts) {
    std::vector<Tensor> parts;
    std::int64_t first = 0;
    for (const std::int64_t count : counts) {
      parts.push_back(x.rows(first, count));
      first += count;
    }
    return parts;
  };
  std::int64_t all = 0, mine = 0;
  for (const std::int64_t count : side_.total) all += count;
  for (const std::int64_t count : side_.mine) mine += count;

  const Tensor by_heads = Tensor::empty({all, batch, 3, side_.heads, channels}, qkv.dtype());
  to_heads_->run(segments(qkv, side_.mine), segments(by_heads, side_.total));
  const Tensor attended = ops::attention(by_heads, scale);
  Tensor out = Tensor::empty({mine, batch, heads, channels}, qkv.dtype());
  to_tokens_->run(segments(attended, side_.total), segments(out, side_.mine));
  return out;
}

std::vector<double> gather_rows(const comm::Group& group, const Layout& rows,
                                const std::vector<double>& mine, std::int64_t values) {
  if (group.size() == 1) return mine;
  // The doubles travel as bytes: they are only moved.
  const Layout from = rows.with_axis(1, values * static_cast<std::int64_t>(sizeof(double)));
  const Tensor source = Tensor::empty(from.box(group.rank()).extent, DType::uint8);
  expect(source.bytes() == static_cast<std::int64_t>(mine.size() * sizeof(double)),
         "{} values for {} rows", mine.size(), rows.box(group.rank()).numel());
  if (!mine.empty()) std::memcpy(source.raw(), mine.data(), mine.size() * sizeof(double));
  const Sharded all =
      relayout({source, from, group}, Layout::replicated(from.global(), group.size()));
  std::vector<double> result(static_cast<std::size_t>(rows.global()[0] * values));
  std::memcpy(result.data(), all.local.raw(), result.size() * sizeof(double));
  return result;
}

}  // namespace reelmesh
