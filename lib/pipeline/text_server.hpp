#pragma once
// The text ranks of split mode.
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/control_messages.hpp"

namespace reelmesh::pipeline {

/// Encodes the prompts of all batches, has their images and videos encoded by the decoding ranks,
/// and sends the embeddings to the replicas that ask for them: first those that a replica waits
/// for, then as many as the queue holds (Plan::queue_bytes).
class TextServer {
 public:
  /// replica: of the text ranks, if they make batches themselves after the last prompt.
  TextServer(ClipMaker& maker, std::span<BatchState> batches, comm::Mailbox& mailbox,
             std::optional<std::size_t> replica);

  /// Returns when all prompts and inputs are encoded, or no replica asks for more. → whether it was
  /// not stopped. Called on all text ranks.
  bool encode_all();
  /// The text ranks get the embeddings of all batches that are left. From then on they answer only
  /// between two steps of their own, and so send each replica all that are left.
  void begin_helping();
  /// Answers requests until there are no more; if the job stops, with that. On the leader.
  void serve_all(bool stopped);

  // On the leader; on other ranks they do nothing.
  /// A message of kind request, finished or encoded. Answers requests if it can.
  void receive(const comm::ControlMessage& message);
  /// The replica of the text ranks makes this batch.
  void keep(std::size_t batch) { sent_[batch] = true; }
  /// Whether no replica asks for embeddings any more.
  bool all_served() const { return std::ranges::find(served_, false) == served_.end(); }

 private:
  Words next_to_encode();
  void answer_requests();
  void answer(std::size_t replica, std::size_t batch);
  void receive_inputs(const Words& words);
  bool ready(std::size_t batch) const { return encoded_[batch] && !awaits_input_[batch]; }

  ClipMaker& maker_;
  std::span<BatchState> batches_;
  comm::Mailbox& mailbox_;
  comm::Group group_;
  std::optional<std::size_t> replica_;
  int leader_;  ///< rank of group_
  bool leads_;
  int decode_leader_;  ///< rank of the job
  bool stopped_ = false, helps_ = false;
  bool decoders_stop_ = false;        ///< the decoding ranks encode no more
  std::vector<bool> encoded_, sent_;  ///< per batch
  std::size_t first_left_ = 0;        ///< batches before this one are encoded
  std::vector<bool> awaits_input_;    ///< per batch: the decoding ranks encode its inputs
  std::size_t inputs_awaited_ = 0;    ///< how many do
  std::map<std::size_t, std::size_t> requested_;  ///< replica → batch that it waits for
  std::vector<bool> served_;                      ///< per replica: it asks for no more
  std::int64_t waiting_bytes_ = 0;                ///< of embeddings that are encoded and not sent
};

}  // namespace reelmesh::pipeline
