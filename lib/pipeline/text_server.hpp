#pragma once
// The text ranks of split mode.
#include <map>
#include <vector>

#include "pipeline/control_messages.hpp"
#include "pipeline/engine.hpp"

namespace reelmesh::pipeline {

/// Encodes the texts of all batches, has their images and videos encoded by the decoding ranks, and
/// sends the embeddings to the replicas that ask for them: first those that a replica waits for,
/// then as many as the queue holds.
class TextServer {
 public:
  TextServer(Work& work, const Schedule& schedule, comm::Mailbox& mailbox);
  /// Returns when no replica asks for more. → false if the job is to stop. The text ranks together.
  bool run();

 private:
  void encode_all();
  // Of the leader:
  Words next_to_encode();
  void receive(const Words& words);
  void receive_pending();
  void receive_inputs(std::size_t batch, bool stops);
  void answer_requests();
  void answer(std::size_t replica, std::size_t batch);
  bool all_served() const { return served_ == served_by_.size(); }

  Work& work_;
  const Schedule& schedule_;
  comm::Mailbox& mailbox_;
  comm::Group group_;
  int leader_;  ///< rank of group_
  bool leads_;
  int decode_leader_;  ///< rank of the world
  bool stopped_ = false;

  // On the leader.
  enum class Encoding { missing, input_awaited, ready };
  std::vector<Encoding> encoding_;  ///< per batch
  std::size_t first_missing_ = 0;   ///< no batch before this one is missing
  std::size_t inputs_awaited_ = 0;
  std::map<std::size_t, std::size_t> requested_;  ///< replica → batch that it waits for
  std::vector<bool> served_by_;                   ///< per replica: it asks for no more
  std::size_t served_ = 0;                        ///< how many ask for no more
  std::int64_t waiting_bytes_ = 0;                ///< of embeddings that wait to be sent
};

}  // namespace reelmesh::pipeline
