#pragma once
// Control messages between the leaders of the groups of split mode: the first rank of a replica or
// of the decoding ranks, and the text rank with the embeddings. A leader sends and receives them,
// and decides what the other ranks of its group do.
#include <vector>

#include "comm/group_values.hpp"
#include "comm/mailbox.hpp"
#include "comm/waiting.hpp"

namespace reelmesh::pipeline {

/// The first word of a message, and what follows it.
enum class MessageKind : std::int64_t {
  request,  ///< to the text ranks: replica, batch
  reply,  ///< from the text ranks: 1 if the job stops; otherwise 1 for each clip of the batch that
          ///< has failed, and the embeddings follow
  latents,  ///< to the decoding ranks: replica, batch, 1 for each clip that has failed. The latents
            ///< follow
  accepted,  ///< from the decoding ranks: they receive a batch of this replica
  finished,  ///< to text and decoding ranks: replica. It takes no more batches
  encode,    ///< from the text to the decoding ranks: batch, whose inputs are to be encoded; −1:
             ///< there are no more
  encoded,   ///< back: batch, 1 if the job stops; otherwise the encoded inputs follow
};

using Words = std::vector<std::int64_t>;

/// The words of the next message. idle: called about 50 times a second until it comes.
template <class Idle>
Words wait_for_message(comm::Mailbox& mailbox, const Idle& idle) {
  constexpr std::chrono::milliseconds interval{20};
  comm::Waiting waiting("wait_for_message");
  while (true) {
    if (auto message = mailbox.wait(interval)) return std::move(message->words);
    waiting.record();
    idle();
  }
}

inline Words control_message(MessageKind kind, std::initializer_list<std::int64_t> more = {}) {
  Words words{static_cast<std::int64_t>(kind)};
  words.insert(words.end(), more);
  return words;
}
inline MessageKind kind_of(const Words& words) { return static_cast<MessageKind>(words.front()); }

inline void append_flags(Words& words, const std::vector<bool>& flags) {
  words.insert(words.end(), flags.begin(), flags.end());
}
/// The flags of append_flags(), which begin at a position.
inline void read_flags(const Words& words, std::size_t position, std::vector<bool>& flags) {
  for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = words.at(position + i) != 0;
}

}  // namespace reelmesh::pipeline
