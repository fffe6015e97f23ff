#pragma once
// Control messages between the leaders of the groups of split mode. The leader of a group sends and
// receives control messages, and decides what its other ranks do.
#include <algorithm>
#include <vector>

#include "comm/mailbox.hpp"
#include "pipeline/clip_maker.hpp"

namespace reelmesh::pipeline {

/// The first word of a message, and what follows it.
enum class MessageKind : std::int64_t {
  request,  ///< to the text ranks: replica, batch
  reply,    ///< from the text ranks: 1 if the job stops, 1 if these are all batches that are left;
            ///< then per batch its index and 1 for each clip that has failed. The embeddings follow
  latents,  ///< to the decoding ranks: replica, batch, 1 for each clip that has failed. The latents
            ///< follow
  accepted,  ///< from the decoding ranks: they receive a batch of this replica
  finished,  ///< to both: replica. It takes no more batches
  encode,    ///< from the text to the decoding ranks: batch, whose inputs are to be encoded; −1:
             ///< there are no more
  encoded,   ///< back: batch, 1 if the job stops; otherwise the encoded inputs follow
};

using Words = std::vector<std::int64_t>;

inline Words control_message(MessageKind kind, std::initializer_list<std::int64_t> more = {}) {
  Words words{static_cast<std::int64_t>(kind)};
  words.insert(words.end(), more);
  return words;
}
inline MessageKind message_kind(const comm::ControlMessage& message) {
  return static_cast<MessageKind>(message.words.front());
}

/// The rank of the job that leads a replica. Of the text ranks it is the one with the embeddings.
inline int replica_leader(const Plan& plan, std::size_t replica) {
  const RankRange& ranks = plan.roles.denoise[replica];
  return ranks == plan.roles.text ? plan.embeddings_rank() : ranks.first;
}

/// The root's words, on every rank of the group.
inline Words broadcast(const comm::Group& group, const Words& words, int root) {
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  const std::string text = group.broadcast({bytes, words.size() * sizeof(words[0])}, root);
  Words received(text.size() / sizeof(words[0]));
  std::copy_n(text.data(), text.size(), reinterpret_cast<char*>(received.data()));
  return received;
}

inline void append_failed(Words& words, BatchState& batch) {
  batch.open();
  words.insert(words.end(), batch.failed.begin(), batch.failed.end());
}
/// Reads the words of append_failed(). → the position after them.
inline std::size_t read_failed(const Words& words, std::size_t position, BatchState& batch) {
  batch.open();
  for (std::size_t i = 0; i < batch.failed.size(); ++i) batch.failed[i] = words.at(position++) != 0;
  return position;
}

}  // namespace reelmesh::pipeline
