#include "layout/token_columns.hpp"

#include <algorithm>

#include "base/trace.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {

TokenColumns::TokenColumns(const comm::Group& group, const std::vector<Layout>& segments,
                           std::int64_t unit)
    : group_(group), segments_(segments), unit_(unit) {
  for (const Layout& segment : segments_) {
    all_tokens_ += numel(segment.global());
    own_tokens_ += own_box(segment, group_).numel();
  }
}

TokenColumns::Range TokenColumns::columns(std::int64_t channels, int rank) const {
  const std::int64_t units = (channels + unit_ - 1) / unit_;
  const auto border = [&](int r) {
    return std::min(channels, cut_offset(units, group_.size(), r) * unit_);
  };
  return {border(rank), border(rank + 1) - border(rank)};
}

const Exchange& TokenColumns::exchange(Way way, std::int64_t channels) const {
  const auto found = exchanges_.find({way, channels});
  if (found != exchanges_.end()) return found->second;
  std::vector<Move> moves;
  for (const Layout& segment : segments_) {
    const std::size_t axis = segment.global().size();
    const Layout tokens = segment.with_axis(axis, channels);
    std::vector<Box> boxes(static_cast<std::size_t>(group_.size()), whole_box(tokens.global()));
    for (int rank = 0; way != Way::gather && rank < group_.size(); ++rank) {
      Box& box = boxes[static_cast<std::size_t>(rank)];
      const Range range = columns(channels, rank);
      box.offset[axis] = range.begin;
      box.extent[axis] = range.count;
    }
    const Layout all(tokens.global(), std::move(boxes));
    moves.push_back(way == Way::to_tokens ? Move{all, tokens} : Move{tokens, all});
  }
  return exchanges_.emplace(std::pair{way, channels}, Exchange(group_, moves)).first->second;
}

// The rows of each segment.
std::vector<Tensor> TokenColumns::split(const Tensor& x, bool all) const {
  std::vector<Tensor> parts;
  std::int64_t row = 0;
  for (const Layout& segment : segments_) {
    const std::int64_t rows = all ? numel(segment.global()) : own_box(segment, group_).numel();
    parts.push_back(x.rows(row, rows));
    row += rows;
  }
  expect(row == x.shape(0), "{} tokens, expected {}", x.shape(0), row);
  return parts;
}

Tensor TokenColumns::to_columns(const Tensor& x) const {
  if (group_.size() == 1) return x;
  const trace::Scope scope(trace::spans::exchange);
  const std::int64_t channels = x.shape(1);
  Tensor out = Tensor::empty({all_tokens_, own_columns(channels).count}, x.dtype(), x.device());
  std::vector<Tensor> targets = split(out, true);
  exchange(Way::to_columns, channels).run(split(x, false), targets);
  return out;
}

Tensor TokenColumns::to_tokens(const Tensor& x, std::int64_t channels) const {
  if (group_.size() == 1) return x;
  const trace::Scope scope(trace::spans::exchange);
  Tensor out = Tensor::empty({own_tokens_, channels}, x.dtype(), x.device());
  std::vector<Tensor> targets = split(out, false);
  exchange(Way::to_tokens, channels).run(split(x, true), targets);
  return out;
}

Tensor TokenColumns::gather(const Tensor& x) const {
  if (group_.size() == 1) return x;
  const trace::Scope scope(trace::spans::exchange);
  Tensor out = Tensor::empty({all_tokens_, x.shape(1)}, x.dtype(), x.device());
  std::vector<Tensor> targets = split(out, true);
  exchange(Way::gather, x.shape(1)).run(split(x, false), targets);
  return out;
}

Tensor TokenColumns::numbers(Device device) const {
  if (group_.size() == 1 || own_tokens_ == 0) return {};
  if (numbers_.empty() || numbers_.device() != device) {
    Tensor found = Tensor::empty({own_tokens_}, DType::int32, device.host());
    std::int64_t row = 0, first = 0;
    for (const Layout& segment : segments_) {
      const Shape& global = segment.global();
      const Box& own = own_box(segment, group_);
      for (std::int64_t i = 0; i < own.numel() && !device.only_shapes; ++i) {
        std::int64_t number = 0, rest = i, stride = 1;
        for (std::size_t axis = global.size(); axis-- > 0;) {
          number += (own.offset[axis] + rest % own.extent[axis]) * stride;
          rest /= own.extent[axis];
          stride *= global[axis];
        }
        found.data<std::int32_t>()[row + i] = static_cast<std::int32_t>(first + number);
      }
      row += own.numel();
      first += numel(global);
    }
    numbers_ = found.on(device);
  }
  return numbers_;
}

Tensor TokenColumns::whole(const Tensor& own, std::int64_t channels) const {
  const Shape global{own.shape(0), channels};
  std::vector<Box> boxes;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Range range = columns(channels, rank);
    boxes.push_back({{0, range.begin}, {own.shape(0), range.count}});
  }
  return relayout({own, Layout(global, std::move(boxes)), group_},
                  Layout::replicated(global, group_.size()))
      .local;
}

}  // namespace reelmesh
