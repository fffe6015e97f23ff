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
#include "ops/attention.hpp"
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

// Keys [first, first + count) in global order, for share number `share` of `shares` (as equal as
// possible) of each rank's heads.
struct Attend::Part {
  std::int64_t first, count;
  std::int64_t share = 0, shares = 1;
};

// [begin, begin + count) of the tokens that a rank holds, or of all heads.
struct Attend::Range {
  std::int64_t begin, count;
};

struct Attend::Rows {
  struct Arrival {
    int rank;
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
      numbers_(number_tokens(segments)),
      dtype_(dtype),
      device_(device),
      numerics_(numerics),
      needs_all_keys_(device.is_cuda() &&
                      ops::may_use_fused_attention(dtype, mesh_.all_tokens(), geometry.channels)) {
  expect(mesh_.ranks() == group.size(), "attention of {} ranks in a group of {}", mesh_.ranks(),
         group.size());
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
  const auto shares = [&, all_heads = heads](std::int64_t multiprocessors, bool near) {
    return head_shares(all_heads / mesh_.ulysses(), tiles, multiprocessors, near);
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

Attend::Range Attend::tokens_in_part(int rank, const Part& part) const {
  const auto& numbers = numbers_[static_cast<std::size_t>(rank)];
  const std::int64_t part_end = part.first + part.count;
  if (numbers.empty() || numbers.front() >= part_end || numbers.back() < part.first) return {0, 0};
  const auto begin = std::lower_bound(numbers.begin(), numbers.end(), part.first);
  const auto end = std::lower_bound(begin, numbers.end(), part_end);
  return {begin - numbers.begin(), end - begin};
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
  std::vector<comm::Message> sends, receives;
  std::int64_t row = 0;
  for (int rank = first; rank < first + mesh_.ulysses(); ++rank) {
    Tensor target = queries.all.rows(row, mesh_.tokens(rank));
    row += mesh_.tokens(rank);
    if (rank == me) {
      const std::int64_t count = mesh_.heads(me);
      copy_heads(q, {mesh_.first_head(me), heads}, target, {0, count}, count, channels);
      continue;
    }
    sends.push_back({rank, dense_heads(q, heads_in(rank))});
    receives.push_back({rank, target});
  }
  queries.messages = group_.begin_exchange(sends, receives);
  return queries;
}

// Sends the keys and values of a part from the ranks that hold them to all ranks that compute
// attention. Heads are packed once per mesh column; a column that needs all heads needs no packing.
Attend::Rows Attend::send_part(const Tensor& keys_values, const Part& keys) const {
  const trace::Scope scope(trace::spans::exchange);
  const int me = group_.rank();
  const auto& [batch, heads, channels, ring] = mesh_.geometry();
  const Range mine = tokens_in_part(me, keys);
  const Tensor rows = keys_values.rows(mine.begin, mine.count);
  const PurposeScope purpose(Purpose::exchange);
  Rows part;
  std::vector<comm::Message> sends, receives;
  std::vector<Tensor> of_columns(static_cast<std::size_t>(mesh_.ulysses()));
  const auto packed = [&](int rank) {
    Tensor& piece = of_columns[static_cast<std::size_t>(mesh_.column(rank))];
    if (piece.empty()) piece = dense_heads(rows, heads_in(rank, keys));
    return piece;
  };
  if (mesh_.attends(me)) {
    const std::int64_t mine_of_heads = heads_in(me, keys).count;
    if (mine.count == keys.count && mine_of_heads == heads) {
      part.all = rows;
    } else {
      part.all = Tensor::empty({keys.count, batch, 2, mine_of_heads, channels}, rows.dtype(),
                               rows.device());
      if (mine.count > 0) part.arrivals.push_back({me, packed(me)});
    }
  }
  // Every rank sends to its next neighbour first, so that not all ranks send to rank 0 first.
  for (int step = 1; step < mesh_.ranks(); ++step) {
    const int to = (me + step) % mesh_.ranks();
    if (mine.count > 0 && mesh_.attends(to)) sends.push_back({to, packed(to)});
    const int from = (me - step + mesh_.ranks()) % mesh_.ranks();
    const Range theirs = tokens_in_part(from, keys);
    if (theirs.count == 0 || !mesh_.attends(me)) continue;
    const auto& numbers = numbers_[static_cast<std::size_t>(from)];
    const std::int64_t begin = numbers[static_cast<std::size_t>(theirs.begin)];
    const std::int64_t last = numbers[static_cast<std::size_t>(theirs.begin + theirs.count - 1)];
    // Consecutive keys are received directly in their rows of `all`.
    if (last - begin + 1 == theirs.count) {
      receives.push_back({from, part.all.rows(begin - keys.first, theirs.count)});
      continue;
    }
    Shape shape = part.all.shape();
    shape[0] = theirs.count;
    part.arrivals.push_back({from, Tensor::empty(std::move(shape), rows.dtype(), rows.device())});
    receives.push_back({from, part.arrivals.back().rows});
  }
  part.messages = group_.begin_exchange(sends, receives);
  return part;
}

// Waits for a part and returns its keys and values in global order.
Tensor Attend::receive_part(Rows part, const Part& keys) const {
  const trace::Scope scope(trace::spans::exchange);
  part.messages.finish();
  for (const auto& [rank, rows] : part.arrivals) {
    const Range range = tokens_in_part(rank, keys);
    const auto& numbers = numbers_[static_cast<std::size_t>(rank)];
    std::vector<std::int64_t> indices(numbers.begin() + range.begin,
                                      numbers.begin() + range.begin + range.count);
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
  const auto& [batch, heads, channels, ring] = mesh_.geometry();
  Tensor out = Tensor::empty(q.shape(), q.dtype(), q.device());
  std::vector<Rows::Arrival> arrivals;
  std::vector<comm::Message> sends, receives;
  std::int64_t row = 0;
  for (int rank = first; rank < first + mesh_.ulysses(); ++rank) {
    const Tensor theirs = attended.rows(row, mesh_.tokens(rank));
    row += mesh_.tokens(rank);
    if (rank == me) {
      arrivals.push_back({me, theirs});
      continue;
    }
    sends.push_back({rank, theirs});
    const PurposeScope purpose(Purpose::exchange);
    arrivals.push_back({rank, Tensor::empty({mesh_.tokens(me), batch, mesh_.heads(rank), channels},
                                            q.dtype(), q.device())});
    receives.push_back({rank, arrivals.back().rows});
  }
  group_.exchange(sends, receives);
  for (const auto& [rank, rows] : arrivals) {
    const std::int64_t count = mesh_.heads(rank);
    copy_heads(rows, {0, count}, out, {mesh_.first_head(rank), heads}, count, channels);
  }
  return out;
}

// Attention to all keys in one kernel, for one share of the heads at a time, while the keys and
// values for the next share are sent.
Tensor Attend::attend_to_all_keys(Rows queries, const Tensor& mine, float scale) const {
  const int me = group_.rank();
  Rows next = send_part(mine, share_of_heads(0));
  queries.messages.finish();
  const Tensor& all = queries.all;
  Tensor out = shares_ == 1 ? all : Tensor::empty(all.shape(), all.dtype(), all.device());
  for (std::int64_t share = 0; share < shares_; ++share) {
    const Tensor part = receive_part(std::exchange(next, {}), share_of_heads(share));
    if (share + 1 < shares_) next = send_part(mine, share_of_heads(share + 1));
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
  Rows queries = send_queries(q);
  const Tensor mine = keys_values();
  if (needs_all_keys_)
    return return_results(attend_to_all_keys(std::move(queries), mine, scale), q);
  const bool on_gpu = device_.is_cuda();
  const std::int64_t all = mesh_.all_tokens();
  // On a GPU, keys that need no exchange are one part; on the CPU, smaller parts stay in cache.
  const std::int64_t part_tokens = on_gpu && mesh_.ranks() == 1 ? all : part_keys(on_gpu);
  const auto part_at = [&](std::int64_t first) {
    return Part{first, std::min(part_tokens, all - first)};
  };
  Rows next = send_part(mine, part_at(0));
  queries.messages.finish();
  ops::Attention attention(queries.all, scale, 1, numerics_);
  for (std::int64_t first = 0; first < all; first += part_tokens) {
    const Tensor part = receive_part(std::exchange(next, {}), part_at(first));
    if (first + part_tokens < all) next = send_part(mine, part_at(first + part_tokens));
    if (mesh_.attends(group_.rank())) attention.add(part);
    constexpr std::int64_t parts_between_points = 8;
    if ((first / part_tokens + 1) % parts_between_points == 0) interruption_point();
  }
  return return_results(attention.finish(), q);
}

}  // namespace reelmesh
