#include "layout/relayout.hpp"

#include <cstring>
#include <map>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

// Of a replicated source: the rank of move.from that sends to rank `receiver` of move.to. A rank
// that holds the array serves itself; the others are distributed round-robin over the holders.
// Ranks are relative to from_first and to_first.
int sending_rank(const Move& move, int receiver, const std::vector<int>& holders) {
  const int self = receiver + move.to_first - move.from_first;
  const bool holds = self >= 0 && self < move.from.ranks() && !move.from.box(self).empty();
  return holds ? self : holders[static_cast<std::size_t>(receiver) % holders.size()];
}

// Elements that a key takes at the front of a message.
std::int64_t key_elements(DType dtype) {
  const auto bytes = static_cast<std::int64_t>(sizeof(MessageKey));
  return (bytes + size_of(dtype) - 1) / size_of(dtype);
}

}  // namespace

void copy_box(const Box& box, const Tensor& source, const Box& from, Tensor& target,
              const Box& to) {
  if (!box.empty()) copy_elements(strided_copy(box, from, to), source, target);
}

gpu::StridedCopy strided_copy(const Box& box, const Box& from, const Box& to) {
  gpu::StridedCopy copy;
  expect(box.extent.size() <= gpu::StridedCopy::max_axes, "copy of a box of {} axes",
         box.extent.size());
  copy.axes = static_cast<int>(box.extent.size());
  std::int64_t source = 1, target = 1;
  for (std::size_t axis = box.extent.size(); axis-- > 0;) {
    copy.extent[axis] = box.extent[axis];
    copy.source[axis] = source;
    copy.target[axis] = target;
    copy.source_offset += (box.offset[axis] - from.offset[axis]) * source;
    copy.target_offset += (box.offset[axis] - to.offset[axis]) * target;
    source *= from.extent[axis];
    target *= to.extent[axis];
  }
  return copy;
}

Exchange::Exchange(const comm::Group& group, const std::vector<Move>& moves) : group_(group) {
  const int me = group.rank();
  std::map<int, Peer> sends, receives;  // by distance in ranks (cyclic), never 0
  for (std::size_t m = 0; m < moves.size(); ++m) {
    const Move& move = moves[m];
    const auto fits = [&](const Layout& layout, int first) {
      return first >= 0 && first + layout.ranks() <= group.size();
    };
    expect(fits(move.from, move.from_first) && fits(move.to, move.to_first),
           "relayout between {} ranks at {} and {} at {} in a group of {}", move.from.ranks(),
           move.from_first, move.to.ranks(), move.to_first, group.size());
    expect(move.from.global() == move.to.global(), "relayout of {} to {}", move.from.global(),
           move.to.global());
    own_.push_back({move.source_box(me), move.target_box(me)});
    const auto& [source_box, target_box] = own_.back();
    if (source_box.empty() && target_box.empty()) continue;
    const bool replicated = move.from.is_replicated();
    if (!replicated && !move.from.is_partition()) {
      fail(Status::internal,
           "relayout from a layout that is neither a partition nor replicated: {}",
           to_string(move.from));
    }
    std::vector<int> holders;
    for (int r = 0; replicated && r < move.from.ranks(); ++r) {
      if (!move.from.box(r).empty()) holders.push_back(r);
    }
    const auto add = [&](std::map<int, Peer>& peers, int distance, int rank, Box box) {
      if (box.empty()) return;
      Peer& peer = peers.try_emplace(distance, Peer{rank, {}, 0}).first->second;
      peer.elements += box.numel();
      peer.pieces.push_back({m, std::move(box)});
    };
    // Every rank sends to the next rank first, so that not all ranks send to rank 0 first.
    const auto distance = [&](int from, int to) {
      return (to - from + group.size()) % group.size();
    };
    for (int r = 0; r < move.to.ranks() && !source_box.empty(); ++r) {
      const Box& needed = move.to.box(r);
      const int to = move.to_first + r;
      if (needed.empty()) continue;
      if (replicated && sending_rank(move, r, holders) != me - move.from_first) continue;
      Box sent = intersect(source_box, needed);
      if (to != me) {
        add(sends, distance(me, to), to, std::move(sent));
      } else if (!sent.empty()) {
        local_.push_back({m, std::move(sent)});
      }
    }
    for (int r = 0; r < move.from.ranks() && !target_box.empty(); ++r) {
      const int from = move.from_first + r;
      if (from == me || move.from.box(r).empty()) continue;
      if (replicated && sending_rank(move, me - move.to_first, holders) != r) continue;
      add(receives, distance(from, me), from, intersect(move.from.box(r), target_box));
    }
  }
  for (auto& [distance, peer] : sends) sends_.push_back(std::move(peer));
  for (auto& [distance, peer] : receives) receives_.push_back(std::move(peer));
}

std::int64_t Exchange::sent_elements() const {
  std::int64_t elements = 0;
  for (const Peer& peer : sends_) elements += peer.elements;
  return elements;
}

void Exchange::run(const std::vector<Tensor>& sources, std::span<Tensor> targets) const {
  const trace::Scope scope(trace::spans::exchange);
  begin(sources, targets).finish();
}

Exchange::Pending Exchange::begin(const std::vector<Tensor>& sources, std::span<Tensor> targets,
                                  const std::optional<MessageKey>& key) const {
  expect(sources.size() == own_.size() && targets.size() == own_.size(),
         "{} sources and {} targets for {} moves", sources.size(), targets.size(), own_.size());
  for (std::size_t m = 0; m < own_.size(); ++m) {
    expect(sources[m].numel() == own_[m].source_box.numel() &&
               targets[m].numel() == own_[m].target_box.numel(),
           "relayout: blocks of {} and {} elements where the layouts have {} and {}",
           sources[m].numel(), targets[m].numel(), own_[m].source_box.numel(),
           own_[m].target_box.numel());
  }
  Pending pending;
  pending.exchange_ = this;
  pending.targets_.assign(targets.begin(), targets.end());
  if (own_.empty()) return pending;
  const DType dtype = sources.front().dtype();
  const Device device = sources.front().device();

  expect(!key || !device.is_cuda(), "messages with keys on {}", to_string(device));
  pending.key_ = key;
  const std::int64_t front = key ? key_elements(dtype) : 0;
  const int tag = key ? 1 + static_cast<int>(key->kind) : 0;

  const PurposeScope purpose(Purpose::exchange);
  // Pack: each piece is a dense block of the message.
  std::vector<comm::Message> send_messages, receive_messages;
  for (const Peer& peer : sends_) {
    Tensor buffer = Tensor::empty({front + peer.elements}, dtype, device);
    if (key && !device.only_shapes) std::memcpy(buffer.raw(), &*key, sizeof *key);
    std::int64_t done = front;
    for (const Piece& piece : peer.pieces) {
      Tensor block = buffer.rows(done, piece.box.numel());
      copy_box(piece.box, sources[piece.move], own_[piece.move].source_box, block, piece.box);
      done += piece.box.numel();
    }
    send_messages.push_back({peer.rank, buffer});
  }
  for (const Peer& peer : receives_) {
    pending.received_.push_back(Tensor::empty({front + peer.elements}, dtype, device));
    receive_messages.push_back({peer.rank, pending.received_.back()});
  }
  pending.messages_ = group_.begin_exchange(send_messages, receive_messages, tag);

  for (const Piece& piece : local_) {
    copy_box(piece.box, sources[piece.move], own_[piece.move].source_box, targets[piece.move],
             own_[piece.move].target_box);
  }
  return pending;
}

// Each message begins with its key.
void Exchange::Pending::check_keys() const {
  for (std::size_t i = 0; key_ && i < received_.size(); ++i) {
    if (received_[i].device().only_shapes) continue;
    MessageKey found;
    std::memcpy(&found, received_[i].raw(), sizeof found);
    require(found == *key_, Status::internal,
            "messages between stages are out of order: rank {} expected {} from rank {}, found {}",
            exchange_->group_.rank(), key_->text(), exchange_->receives_[i].rank, found.text());
  }
}

void Exchange::Pending::finish() {
  try {
    messages_.finish();
  } catch (const Error&) {  // perhaps a message of another size
    check_keys();
    throw;
  }
  check_keys();
  for (std::size_t i = 0; i < received_.size(); ++i) {
    std::int64_t done = key_ ? key_elements(received_[i].dtype()) : 0;
    for (const Piece& piece : exchange_->receives_[i].pieces) {
      copy_box(piece.box, received_[i].rows(done, piece.box.numel()), piece.box,
               targets_[piece.move], exchange_->own_[piece.move].target_box);
      done += piece.box.numel();
    }
  }
}

Sharded relayout(const Sharded& x, const Layout& to) {
  if (x.layout == to) return x;
  Sharded result{Tensor::empty(to.box(x.group.rank()).extent, x.local.dtype(), x.local.device()),
                 to, x.group};
  Exchange(x.group, {{x.layout, to}}).run({x.local}, {&result.local, 1});
  return result;
}

}  // namespace reelmesh
