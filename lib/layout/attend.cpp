#include "layout/attend.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "base/interruption.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "ops/attention_backward.hpp"
#include "ops/rows.hpp"
#include "tensor/gpus.hpp"
#include "tensor/ledger.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

static_assert(Attend::part_keys(false) % ops::Attention::block_keys == 0 &&
              Attend::part_keys(true) % ops::Attention::block_keys == 0);

// Global indices of each rank's tokens, segment after segment. They ascend, since the row-major
// order within a box agrees with the global order.
std::vector<std::vector<std::int64_t>> number_tokens(const std::vector<Layout>& segments) {
  std::vector<std::vector<std::int64_t>> numbers(static_cast<std::size_t>(segments[0].ranks()));
  std::int64_t before = 0;
  for (const Layout& segment : segments) {
    const Shape& global = segment.global();
    if (!segment.is_partition()) {
      fail(Status::internal, "attention needs a partition, found {}", to_string(segment));
    }
    for (int r = 0; r < segment.ranks(); ++r) {
      const Box& box = segment.box(r);
      for (std::int64_t i = 0; i < box.numel(); ++i) {
        std::int64_t number = 0, rest = i, stride = 1;
        for (std::size_t axis = global.size(); axis-- > 0;) {
          number += (box.offset[axis] + rest % box.extent[axis]) * stride;
          rest /= box.extent[axis];
          stride *= global[axis];
        }
        numbers[static_cast<std::size_t>(r)].push_back(before + number);
      }
    }
    before += numel(global);
  }
  return numbers;
}

// Copies `count` heads between dense arrays [row, …, head, channel]: from head from.first of
// from.all heads to head to.first of to.all heads.
struct Heads {
  std::int64_t first, all;
};
void copy_heads(const Tensor& source, Heads from, Tensor& target, Heads to, std::int64_t count,
                std::int64_t channels) {
  if (source.empty() || target.empty()) return;
  const std::int64_t rows = source.numel() / (from.all * channels);
  // The copied heads are 0…count in global coordinates, so both arrays start at −first.
  const Box box{{0, 0, 0}, {rows, count, channels}};
  copy_box(box, source, {{0, -from.first, 0}, {rows, from.all, channels}}, target,
           {{0, -to.first, 0}, {rows, to.all, channels}});
}

// Copies row i of `source` to row indices[i] of `target`; indices ascend. Runs of consecutive rows
// with equal lengths and equal distances, as the tokens of a box have, take one strided copy.
void scatter_rows(const Tensor& source, std::span<const std::int64_t> indices, Tensor& target) {
  const std::size_t count = indices.size();
  const auto run_at = [&](std::size_t i) {
    std::size_t length = 1;
    while (i + length < count && indices[i + length] == indices[i] + std::int64_t(length)) ++length;
    return length;
  };
  for (std::size_t begin = 0, end = 0; begin < count; begin = end) {
    const std::size_t length = run_at(begin);
    auto distance = static_cast<std::int64_t>(length);
    std::int64_t runs = 1;
    for (end = begin + length; end < count && run_at(end) == length; ++runs, end += length) {
      const std::int64_t next = indices[end] - indices[end - length];
      if (runs > 1 && next != distance) break;
      distance = next;
    }
    const std::int64_t keys = static_cast<std::int64_t>(length), first = indices[begin];
    const std::int64_t row = target.numel() / target.shape(0);
    const Box box{{0, 0, 0}, {runs, keys, row}};
    Tensor rows = target.rows(first, target.shape(0) - first);
    copy_box(box, source.rows(static_cast<std::int64_t>(begin), runs * keys), box, rows,
             {{0, 0, 0}, {runs, distance, row}});
  }
}

}  // namespace

void prepare_attend(const comm::Group& group, Device device, DType dtype, std::int64_t keys,
                    std::int64_t channels, std::span<const ops::AttentionShape> shapes,
                    const Numerics& numerics) {
  if (!device.is_cuda() || device.only_shapes) return;
  if (!ops::may_use_fused_attention(dtype, keys, channels)) return;
  std::string choice;
  comm::run_collectively(group, [&] {
    if (group.rank() != 0) return;
    choice = ops::fastest_attention(device, dtype, keys, channels, numerics);
  });
  choice = group.broadcast(choice, 0);
  const auto prepare = [&] {
    comm::run_collectively(group, [&] {
      ops::use_attention(device, dtype, keys, channels, numerics, choice);
      for (const ops::AttentionShape& shape : shapes) ops::prepare_attend(device, shape, numerics);
    });
  };
  try {
    prepare();
  } catch (const Error& error) {
    // On all ranks: the fastest kernel does not support a shape, but the first one may.
    if (error.status() != Status::unavailable || choice.empty()) throw;
    choice.clear();
    prepare();
  }
}

Tensor attend_recorded_together(const Tensor& q, const Tensor& keys_values, float scale,
                                const Numerics& numerics, std::int64_t sequences,
                                const SequenceMoves& of_queries, const SequenceMoves& of_keys) {
  const std::int64_t batch = q.shape(1), channels = q.shape(3), d = q.shape(2) * channels;
  const auto moved = [](const std::function<Tensor(const Tensor&)>& move, const Tensor& rows) {
    return move ? move(rows) : rows;
  };
  const auto own_rows = [](const Tensor& x, std::int64_t columns) {
    return x.reshape({x.shape(0) * x.shape(1), columns});
  };
  // Rows as tokens with heads, and back.
  const auto heads = [batch, channels](const Tensor& x) {
    const std::int64_t tokens = batch > 0 ? x.shape(0) / batch : 0;
    return x.reshape({tokens, batch, x.shape(1) / channels, channels});
  };
  const auto rows = [](const Tensor& x) {
    return x.reshape({x.shape(0) * x.shape(1), x.shape(2) * x.shape(3)});
  };
  struct Inputs {
    Tensor q, k, v;
    ops::AttentionForward forward;
  };
  const Tensor both = own_rows(keys_values, 2 * d);
  Inputs in{heads(moved(of_queries.to_whole, own_rows(q, d))),
            heads(moved(of_keys.to_whole, ops::columns(both, 0, d))),
            heads(moved(of_keys.to_whole, ops::columns(both, d, d))),
            {}};
  in.forward = ops::attention_forward(in.q, in.k, in.v, scale, numerics, sequences);
  Tensor out = moved(of_queries.to_own, rows(in.forward.out)).reshape(q.shape());
  Tape* tape = Tape::of(q, keys_values);
  if (tape == nullptr) return out;
  tape->record(out, [=, taped_q = TapeValue(q),
                     taped_keys_values = TapeValue(keys_values)](const Tensor& d_out) mutable {
    ops::AttentionGradients gradients = ops::attention_backward(
        in.q, in.k, in.v, in.forward,
        heads(moved(of_queries.to_whole, own_rows(d_out.reshape(taped_q.shape), d))), scale,
        numerics, sequences);
    in = {};
    const auto to_own = [&](const SequenceMoves& moves, Tensor& x) {
      return moved(moves.to_own, rows(std::exchange(x, {})));
    };
    if (taped_q) {
      ops::add_gradient(*tape, taped_q, to_own(of_queries, gradients.q).reshape(taped_q.shape));
    }
    if (!taped_keys_values) return;
    const Tensor d_k = to_own(of_keys, gradients.k), d_v = to_own(of_keys, gradients.v);
    Tensor d_both = Tensor::empty({d_k.shape(0), 2 * d}, d_out.dtype(), d_out.device());
    ops::set_columns(d_both, 0, d_k);
    ops::set_columns(d_both, d, d_v);
    ops::add_gradient(*tape, taped_keys_values, d_both.reshape(taped_keys_values.shape));
  });
  return out;
}

Tensor attend_to_whole_together(const TokenColumns& columns, const Tensor& q,
                                const Tensor& keys_values, float scale, const Numerics& numerics) {
  if (Tape::recording() == nullptr) return ops::attend(q, keys_values, scale, 1, numerics);
  const std::int64_t d = q.shape(2) * q.shape(3);
  const SequenceMoves of_queries{
      [&columns](const Tensor& x) { return columns.to_columns(x); },
      [&columns, d](const Tensor& x) { return columns.to_tokens(x, d); }};
  const SequenceMoves of_keys{[&columns, d](const Tensor& x) {
                                const TokenRows::Range own = columns.own_columns(d);
                                return ops::columns(x, own.begin, own.count);
                              },
                              [&columns, d](const Tensor& x) { return columns.whole(x, d); }};
  return attend_recorded_together(q, keys_values, scale, numerics, 1, of_queries, of_keys);
}

// Keys [first, first + count) in global order, for share number `share` of `shares` (as equal as
// possible) of each rank's heads.
struct Attend::Part {
  std::int64_t first, count;
  std::int64_t share = 0, shares = 1;
};

struct Attend::Rows {
  struct Arrival {
    std::size_t holder;
    Tensor rows;
  };
  Tensor all;
  std::vector<Arrival> arrivals;  // rows that receive_part() must copy to their rows of `all`
  comm::PendingMessages messages;
};

Attend::Attend(const comm::Group& group, const std::vector<Layout>& segments,
               const AttentionGeometry& geometry, DType dtype, Device device,
               const Numerics& numerics)
    : group_(group),
      mesh_(segments, geometry),
      columns_(group, segments, geometry.channels),
      dtype_(dtype),
      device_(device),
      numerics_(numerics),
      needs_all_keys_(device.is_cuda() &&
                      ops::may_use_fused_attention(dtype, mesh_.all_tokens(), geometry.channels)) {
  expect(mesh_.ranks() == group.size(), "attention of {} ranks in a group of {}", mesh_.ranks(),
         group.size());
  find_holders(number_tokens(segments));
  if (!needs_all_keys_) return;
  // A library may be missing on some ranks, but all must send and receive the same parts.
  const bool here =
      ops::uses_fused_attention(device, dtype, mesh_.all_tokens(), geometry.channels, numerics);
  needs_all_keys_ = group.max(std::int64_t{here ? 0 : 1}) == 0;
  if (!needs_all_keys_) return;
  shares_ = choose_shares();
  std::vector<ops::AttentionShape> shapes;
  const int me = group.rank();
  for (std::int64_t share = 0; share < shares_ && mesh_.attends(me); ++share) {
    shapes.push_back({.dtype = dtype,
                      .batch = geometry.batch,
                      .heads = heads_in(me, share_of_heads(share)).count,
                      .channels = geometry.channels,
                      .queries = mesh_.row_tokens(me),
                      .keys = mesh_.all_tokens()});
  }
  prepare_attend(group, device, dtype, mesh_.all_tokens(), geometry.channels, shapes, numerics);
}

std::int64_t Attend::choose_shares() const {
  if (mesh_.ranks() == 1) return 1;
  const auto& [batch, heads, channels, ring] = mesh_.geometry();
  const std::int64_t queries = mesh_.all_tokens() / ring,
                     tiles = batch * ((queries + tile_queries - 1) / tile_queries);
  const std::int64_t heads_of_rank = heads / mesh_.ulysses();
  // Of the tokens of a row, or with one row of a rank.
  const std::int64_t message = mesh_.all_tokens() / (ring > 1 ? ring : mesh_.ranks()) * batch * 2 *
                               heads_of_rank * channels * size_of(dtype_);
  const auto shares = [&](std::int64_t multiprocessors, bool near) {
    return head_shares(heads_of_rank, tiles, multiprocessors, near, message);
  };
  if (device_.only_shapes) {
    const GpuRanks& gpus = Ledger::current().precision().gpus;
    return shares(gpus.multiprocessors, mesh_.ranks() <= gpus.of_node);
  }
  // Ranks on one host have the same name of it, and only then are both maxima those of one hash.
  const auto host = static_cast<std::int64_t>(std::hash<std::string>{}(host_name()) >> 1);
  std::array<std::int64_t, 3> max{multiprocessors(device_), host, -host};
  group_.max(max);
  return shares(max[0], max[1] == -max[2]);
}

Attend::Part Attend::share_of_heads(std::int64_t share) const {
  return {0, mesh_.all_tokens(), share, shares_};
}

// numbers: of each rank's tokens in global order, ascending.
void Attend::find_holders(std::vector<std::vector<std::int64_t>> numbers) {
  const int me = group_.rank();
  const Range all_heads{0, mesh_.geometry().heads};
  if (mesh_.ring() == 1 || mesh_.ulysses() == 1) {
    holders_ = {{}, std::move(numbers), static_cast<std::size_t>(me), all_heads};
    for (int rank = 0; rank < mesh_.ranks(); ++rank) holders_.ranks.push_back(rank);
    return;
  }
  row_ = {{}, {}, static_cast<std::size_t>(mesh_.column(me)), all_heads};
  row_.numbers.resize(static_cast<std::size_t>(mesh_.ulysses()));
  for (int column = 0; column < mesh_.ulysses(); ++column) {
    row_.ranks.push_back(mesh_.first_of_row(me) + column);
  }
  holders_ = {{}, {}, static_cast<std::size_t>(mesh_.row(me)), heads_in(me)};
  holders_.numbers.resize(static_cast<std::size_t>(mesh_.ring()));
  for (int row = 0; row < mesh_.ring(); ++row) {
    holders_.ranks.push_back(row * mesh_.ulysses() + mesh_.column(me));
  }
  std::vector<int> rank_of(static_cast<std::size_t>(mesh_.all_tokens()));
  for (int rank = 0; rank < mesh_.ranks(); ++rank) {
    for (const std::int64_t number : numbers[static_cast<std::size_t>(rank)]) {
      rank_of[static_cast<std::size_t>(number)] = rank;
    }
  }
  for (std::int64_t number = 0; number < mesh_.all_tokens(); ++number) {
    const int rank = rank_of[static_cast<std::size_t>(number)];
    auto& of_row = holders_.numbers[static_cast<std::size_t>(mesh_.row(rank))];
    if (mesh_.row(rank) == mesh_.row(me)) {
      row_.numbers[static_cast<std::size_t>(mesh_.column(rank))].push_back(std::ssize(of_row));
    }
    of_row.push_back(number);
  }
}

// The heads for which a rank computes attention, or the share of them that `keys` is for.
Attend::Range Attend::heads_in(int rank) const {
  return {mesh_.first_head(rank), mesh_.heads(rank)};
}
Attend::Range Attend::heads_in(int rank, const Part& keys) const {
  const auto [first, count] = heads_in(rank);
  const std::int64_t begin = count * keys.share / keys.shares;
  return {first + begin, count * (keys.share + 1) / keys.shares - begin};
}

// Heads `some` of x [row, …, head, channel], whose heads start at global head `first`; dense.
Tensor Attend::dense_heads(const Tensor& x, const Range& some, std::int64_t first) {
  Shape shape = x.shape();
  std::int64_t& heads = shape[shape.size() - 2];
  if (some.count == heads) return x;
  const std::int64_t all = std::exchange(heads, some.count), channels = shape.back();
  Tensor out = Tensor::empty(std::move(shape), x.dtype(), x.device());
  copy_heads(x, {some.begin - first, all}, out, {0, some.count}, some.count, channels);
  return out;
}

// The heads of each rank of this rank's row.
std::vector<Attend::Range> Attend::heads_of_row() const {
  const int first = mesh_.first_of_row(group_.rank());
  std::vector<Range> heads;
  for (int rank = first; rank < first + mesh_.ulysses(); ++rank) heads.push_back(heads_in(rank));
  return heads;
}

// Dense tensors of some ranges of the heads of an array [row, …, head, channel], one after another.
std::vector<Tensor> Attend::parts_of(const Tensor& packed, const Shape& shape,
                                     std::span<const Range> ranges) {
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (const Range& range : ranges) {
    Shape part = shape;
    part[part.size() - 2] = range.count;
    const std::int64_t elements = numel(part);
    parts.push_back(packed.rows(begin, elements).reshape(std::move(part)));
    begin += elements;
  }
  return parts;
}

// The copies of an array, whose heads start at global head `first`, to parts_of() it. Ranges of as
// many heads at equal distances take one copy.
std::vector<gpu::StridedCopy> Attend::copies(const Shape& shape, std::int64_t first,
                                             std::span<const Range> ranges) {
  const std::int64_t channels = shape.back(), all = shape[shape.size() - 2] * channels;
  const std::int64_t rows = all == 0 ? 0 : numel(shape) / all;
  std::vector<gpu::StridedCopy> found;
  std::int64_t packed = 0;
  for (std::size_t i = 0, end = 0; i < ranges.size(); i = end) {
    const auto distance = [&](std::size_t at) { return ranges[at].begin - ranges[at - 1].begin; };
    end = i + 1;
    while (end < ranges.size() && ranges[end].count == ranges[i].count &&
           distance(end) == distance(i + 1)) {
      ++end;
    }
    const std::int64_t some = ranges[i].count * channels;
    const auto count = static_cast<std::int64_t>(end - i);
    if (rows * some > 0) {
      found.push_back({.axes = 3,
                       .extent = {count, rows, some},
                       .source = {count > 1 ? distance(i + 1) * channels : 0, all, 1},
                       .target = {rows * some, some, 1},
                       .source_offset = (ranges[i].begin - first) * channels,
                       .target_offset = packed});
    }
    packed += count * rows * some;
  }
  return found;
}

// Ranges of the heads of x, whose heads start at global head `first`, each as a dense tensor.
std::vector<Tensor> Attend::pack_heads(const Tensor& x, std::int64_t first,
                                       std::span<const Range> ranges) {
  if (ranges.size() == 1) return {dense_heads(x, ranges.front(), first)};
  Shape shape = x.shape();
  std::int64_t& heads = shape[shape.size() - 2];
  heads = 0;
  for (const Range& range : ranges) heads += range.count;
  Tensor packed = Tensor::empty({numel(shape)}, x.dtype(), x.device());
  for (const gpu::StridedCopy& copy : copies(x.shape(), first, ranges)) {
    copy_elements(copy, x, packed);
  }
  return parts_of(packed, x.shape(), ranges);
}

// The reverse of pack_heads(), from one tensor with all parts to x, whose heads start at head 0.
void Attend::unpack_heads(const Tensor& packed, std::span<const Range> ranges, Tensor& x) {
  for (gpu::StridedCopy copy : copies(x.shape(), 0, ranges)) {
    std::swap(copy.source, copy.target);
    std::swap(copy.source_offset, copy.target_offset);
    copy_elements(copy, packed, x);
  }
}

// Exchanges queries within a mesh row (Ulysses): all tokens of the row for this rank's heads. They
// are ordered by rank, since the order of queries does not affect their results.
Attend::Rows Attend::send_queries(const Tensor& q) const {
  Rows queries;
  if (mesh_.ulysses() == 1) {
    queries.all = q;
    return queries;
  }
  const trace::Scope scope(trace::spans::exchange);
  const int me = group_.rank(), first = mesh_.first_of_row(me);
  const auto& [batch, heads, channels, ring] = mesh_.geometry();
  queries.all = Tensor::empty({mesh_.row_tokens(me), batch, mesh_.heads(me), channels}, q.dtype(),
                              q.device());
  const std::vector<Tensor> packed = pack_heads(q, 0, heads_of_row());
  std::vector<comm::Message> sends, receives;
  std::int64_t row = 0;
  for (int rank = first; rank < first + mesh_.ulysses(); ++rank) {
    Tensor target = queries.all.rows(row, mesh_.tokens(rank));
    row += mesh_.tokens(rank);
    const Tensor& piece = packed[static_cast<std::size_t>(rank - first)];
    if (rank == me) {
      target.copy_from(piece);
    } else {
      sends.push_back({rank, piece});
      receives.push_back({rank, target});
    }
  }
  queries.messages = group_.begin_exchange(sends, receives);
  return queries;
}

// Exchanges keys and values within a mesh row: those of all tokens of the row, in global order, for
// this rank's heads.
Tensor Attend::gather_row(const Tensor& keys_values) const {
  const int me = group_.rank();
  const Part all{0, mesh_.row_tokens(me)};
  Tensor row = receive_part(send_part(keys_values, all, row_), all, row_);
  if (mesh_.attends(me)) return row;
  const auto& [batch, heads, channels, ring] = mesh_.geometry();
  return Tensor::empty({all.count, batch, 2, mesh_.heads(me), channels}, dtype_, device_);
}

// Sends the keys and values of a part from the holders to those of them that compute attention.
// Heads are packed once per mesh column.
Attend::Rows Attend::send_part(const Tensor& keys_values, const Part& keys,
                               const Holders& holders) const {
  const trace::Scope scope(trace::spans::exchange);
  const int me = group_.rank();
  const auto& [batch, heads, channels, ring] = mesh_.geometry();
  const auto tokens_of = [&](std::size_t holder) {
    const auto& numbers = holders.numbers[holder];
    const auto begin = std::ranges::lower_bound(numbers, keys.first);
    const auto end = std::lower_bound(begin, numbers.end(), keys.first + keys.count);
    return std::span(begin, end);
  };
  const auto mine = tokens_of(holders.me);
  const std::int64_t count = std::ssize(mine);
  const Tensor rows = keys_values.rows(mine.data() - holders.numbers[holders.me].data(), count);
  const PurposeScope purpose(Purpose::exchange);
  Rows part;
  std::vector<comm::Message> sends, receives;
  // Of ranks of one row each needs other heads, of ranks of one column all need the same.
  std::vector<Range> wanted{heads_in(me, keys)};
  const bool one_column = mesh_.column(holders.ranks.front()) == mesh_.column(holders.ranks.back());
  if (!one_column) {
    wanted.clear();
    for (const int rank : holders.ranks) wanted.push_back(heads_in(rank, keys));
  }
  std::vector<Tensor> pieces;
  if (count > 0) pieces = pack_heads(rows, holders.heads.begin, wanted);
  const auto packed = [&](std::size_t holder) { return pieces[one_column ? 0 : holder]; };
  const auto arrive = [&](std::size_t holder, const Tensor& tensor) {
    part.arrivals.push_back({holder, tensor});
  };
  if (mesh_.attends(me)) {
    const std::int64_t mine_of_heads = heads_in(me, keys).count;
    if (count == keys.count && mine_of_heads == holders.heads.count) {
      part.all = rows;
    } else {
      part.all = Tensor::empty({keys.count, batch, 2, mine_of_heads, channels}, rows.dtype(),
                               rows.device());
      if (count > 0) arrive(holders.me, packed(holders.me));
    }
  }
  // Every rank sends to its next neighbour first, so that not all ranks send to the first first.
  const std::size_t size = holders.ranks.size();
  for (std::size_t step = 1; step < size; ++step) {
    const std::size_t to = (holders.me + step) % size;
    if (count > 0 && mesh_.attends(holders.ranks[to])) {
      sends.push_back({holders.ranks[to], packed(to)});
    }
    const std::size_t from = (holders.me + size - step) % size;
    const auto theirs = tokens_of(from);
    if (theirs.empty() || !mesh_.attends(me)) continue;
    // Consecutive keys are received directly in their rows of `all`.
    if (theirs.back() - theirs.front() + 1 == std::ssize(theirs)) {
      receives.push_back(
          {holders.ranks[from], part.all.rows(theirs.front() - keys.first, std::ssize(theirs))});
      continue;
    }
    Shape shape = part.all.shape();
    shape[0] = std::ssize(theirs);
    arrive(from, Tensor::empty(std::move(shape), rows.dtype(), rows.device()));
    receives.push_back({holders.ranks[from], part.arrivals.back().rows});
  }
  part.messages = group_.begin_exchange(sends, receives);
  return part;
}

// Waits for a part and returns its keys and values in global order.
Tensor Attend::receive_part(Rows part, const Part& keys, const Holders& holders) const {
  const trace::Scope scope(trace::spans::exchange);
  part.messages.finish();
  for (const auto& [holder, rows] : part.arrivals) {
    const auto& numbers = holders.numbers[holder];
    const auto begin = std::ranges::lower_bound(numbers, keys.first);
    std::vector<std::int64_t> indices(begin, begin + rows.shape(0));
    for (std::int64_t& index : indices) index -= keys.first;
    scatter_rows(rows, indices, part.all);
  }
  return part.all;
}

// The reverse of send_queries(): each rank receives the results of its own tokens for all heads.
Tensor Attend::return_results(const Tensor& attended, const Tensor& q) const {
  if (mesh_.ulysses() == 1) return attended;
  const trace::Scope scope(trace::spans::exchange);
  const int me = group_.rank(), first = mesh_.first_of_row(me);
  const std::vector<Range> ranges = heads_of_row();
  Tensor out = Tensor::empty(q.shape(), q.dtype(), q.device()), packed;
  {
    const PurposeScope purpose(Purpose::exchange);
    packed = Tensor::empty({q.numel()}, q.dtype(), q.device());
  }
  std::vector<Tensor> pieces = parts_of(packed, q.shape(), ranges);
  std::vector<comm::Message> sends, receives;
  std::int64_t row = 0;
  for (int rank = first; rank < first + mesh_.ulysses(); ++rank) {
    const Tensor theirs = attended.rows(row, mesh_.tokens(rank));
    row += mesh_.tokens(rank);
    Tensor& piece = pieces[static_cast<std::size_t>(rank - first)];
    if (rank == me) {
      piece.copy_from(theirs);
    } else {
      sends.push_back({rank, theirs});
      receives.push_back({rank, piece});
    }
  }
  group_.exchange(sends, receives);
  unpack_heads(packed, ranges, out);
  return out;
}

// Attention to all keys in one kernel, for one share of the heads at a time, while the keys and
// values for the next share are sent.
Tensor Attend::attend_to_all_keys(Rows queries, const Tensor& mine, float scale) const {
  const int me = group_.rank();
  Rows next = send_part(mine, share_of_heads(0), holders_);
  queries.messages.finish();
  const Tensor& all = queries.all;
  Tensor out = shares_ == 1 ? all : Tensor::empty(all.shape(), all.dtype(), all.device());
  for (std::int64_t share = 0; share < shares_; ++share) {
    const Tensor part = receive_part(std::exchange(next, {}), share_of_heads(share), holders_);
    if (share + 1 < shares_) next = send_part(mine, share_of_heads(share + 1), holders_);
    if (!mesh_.attends(me)) continue;
    const Range some = heads_in(me, share_of_heads(share));
    const std::int64_t first = mesh_.first_head(me), count = some.count;
    Tensor attended = ops::attend(dense_heads(all, some, first), part, scale, 1, numerics_);
    if (shares_ == 1) return attended;
    copy_heads(attended, {0, count}, out, {some.begin - first, mesh_.heads(me)}, count,
               mesh_.geometry().channels);
  }
  return out;
}

Tensor Attend::operator()(const Tensor& q, const std::function<Tensor()>& keys_values,
                          float scale) const {
  expect(q.dtype() == dtype_ && q.device() == device_, "attention of {} on {} set up for {} on {}",
         name_of(q.dtype()), to_string(q.device()), name_of(dtype_), to_string(device_));
  if (Tape::recording() != nullptr) {
    const std::int64_t d = q.shape(2) * q.shape(3);
    const SequenceMoves moves{[this](const Tensor& x) { return columns_.to_columns(x); },
                              [this, d](const Tensor& x) { return columns_.to_tokens(x, d); }};
    return attend_recorded_together(q, keys_values(), scale, numerics_, 1, moves, moves);
  }
  Rows queries = send_queries(q);
  Tensor mine = keys_values();
  if (!row_.ranks.empty()) mine = gather_row(mine);
  if (needs_all_keys_)
    return return_results(attend_to_all_keys(std::move(queries), mine, scale), q);
  const bool on_gpu = device_.is_cuda();
  const std::int64_t all = mesh_.all_tokens();
  // On a GPU, keys that need no exchange are one part; on the CPU, smaller parts stay in cache.
  const std::int64_t part_tokens = on_gpu && mesh_.ranks() == 1 ? all : part_keys(on_gpu);
  const auto part_at = [&](std::int64_t first) {
    return Part{first, std::min(part_tokens, all - first)};
  };
  Rows next = send_part(mine, part_at(0), holders_);
  queries.messages.finish();
  ops::Attention attention(queries.all, scale, 1, numerics_);
  for (std::int64_t first = 0; first < all; first += part_tokens) {
    const Tensor part = receive_part(std::exchange(next, {}), part_at(first), holders_);
    if (first + part_tokens < all) next = send_part(mine, part_at(first + part_tokens), holders_);
    if (mesh_.attends(group_.rank())) attention.add(part);
    constexpr std::int64_t parts_between_points = 8;
    if ((first / part_tokens + 1) % parts_between_points == 0) interruption_point();
  }
  return return_results(attention.finish(), q);
}

}  // namespace reelmesh
