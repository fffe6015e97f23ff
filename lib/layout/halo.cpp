#include "layout/halo.hpp"

#include <algorithm>

#include "base/trace.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

constexpr std::size_t row_axis = 1, column_axis = 2;

// `box` with [begin, end) along `axis`; empty if `box` is empty.
Box slice(Box box, std::size_t axis, std::int64_t begin, std::int64_t end) {
  box.offset[axis] = begin;
  box.extent[axis] = box.empty() ? 0 : std::max<std::int64_t>(0, end - begin);
  return box;
}

// For each rank four strips around its rectangle: above and below (with the corners), left, right.
std::vector<Move> strips_around(const Layout& image, const ops::Window& window) {
  const Layout around = image.grown(row_axis, window.before, window.halo_after())
                            .grown(column_axis, window.before, window.halo_after());
  std::vector<std::vector<Box>> strips(4);
  for (int r = 0; r < image.ranks(); ++r) {
    const Box &own = image.box(r), &all = around.box(r);
    const Box middle = slice(all, row_axis, own.offset[row_axis], own.end(row_axis));
    strips[0].push_back(slice(all, row_axis, all.offset[row_axis], own.offset[row_axis]));
    strips[1].push_back(slice(all, row_axis, own.end(row_axis), all.end(row_axis)));
    strips[2].push_back(
        slice(middle, column_axis, all.offset[column_axis], own.offset[column_axis]));
    strips[3].push_back(slice(middle, column_axis, own.end(column_axis), all.end(column_axis)));
  }
  std::vector<Move> moves;
  for (std::vector<Box>& boxes : strips) {
    moves.push_back({image, Layout(image.global(), std::move(boxes))});
  }
  return moves;
}

}  // namespace

Halo::Halo(const comm::Group& group, const Layout& image, const ops::Window& window)
    : Halo(group, image, strips_around(image, window)) {}

Halo::Halo(const comm::Group& group, const Layout& image, const std::vector<Move>& strips)
    : global_(image.global()), own_(own_box(image, group)), exchange_(group, strips) {
  for (const Move& move : strips) strips_.push_back(own_box(move.to, group));
}

Halo::Pending Halo::begin(const Tensor& x) const {
  const trace::Scope scope(trace::spans::exchange);
  Pending pending;
  pending.own = x;
  pending.image = {global_[row_axis], global_[column_axis], {}};
  const auto add = [&](const Box& box, const Tensor& values) {
    if (values.empty()) return;
    pending.image.pieces.push_back({{box.offset[row_axis], box.extent[row_axis],
                                     box.offset[column_axis], box.extent[column_axis]},
                                    values});
  };
  add(own_, x);
  const PurposeScope purpose(Purpose::exchange);
  std::vector<Tensor> strips;
  for (const Box& box : strips_) {
    strips.push_back(Tensor::empty(box.extent, x.dtype(), x.device()));
    add(box, strips.back());
  }
  pending.exchange = exchange_.begin(std::vector<Tensor>(strips.size(), x), strips);
  return pending;
}

void Halo::Pending::finish() {
  const trace::Scope scope(trace::spans::exchange);
  exchange.finish();
}

Tensor convolve(const ops::Convolution& convolution, Halo::Pending& x, const ops::Image& previous,
                std::int64_t enlarged) {
  const ops::ImageBox box = x.image.pieces.empty() ? ops::ImageBox{} : x.image.pieces.front().box;
  const std::int64_t stride = convolution.window().stride;
  const auto scaled = [&](std::int64_t position) {
    expect(position * enlarged % stride == 0, "convolution with stride {} of a part cut at {}",
           stride, position);
    return position * enlarged / stride;
  };
  const ops::ImageBox want{scaled(box.row), scaled(box.rows), scaled(box.column),
                           scaled(box.columns)};
  const Shape shape{x.own.shape(0), want.rows, want.columns, convolution.out_channels()};
  Tensor out = Tensor::empty(shape, x.own.dtype(), x.own.device());
  convolution.run(x.image, previous, enlarged, want, out, ops::Tiles::inner);
  x.finish();
  convolution.run(x.image, previous, enlarged, want, out, ops::Tiles::outer);
  return out;
}

void add_up(const comm::Group& group, std::span<ops::ExactSum> sums) {
  const trace::Scope scope(trace::spans::exchange);
  std::vector<std::int64_t> values;
  for (const ops::ExactSum& sum : sums) {
    values.insert(values.end(), {sum.high, sum.middle, sum.low, sum.lost});
  }
  group.sum(values);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = {values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]};
  }
}

}  // namespace reelmesh
