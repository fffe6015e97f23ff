#include "comm/trace_channel.hpp"

#include <numeric>
#include <utility>

#include "comm/requests.hpp"

namespace reelmesh::comm {

std::vector<int> ranks_in(MPI_Comm comm, MPI_Comm other) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::vector<int> own(static_cast<std::size_t>(size)), theirs(own.size());
  std::iota(own.begin(), own.end(), 0);
  MPI_Group from = MPI_GROUP_NULL, to = MPI_GROUP_NULL;
  check(MPI_Comm_group(comm, &from), "MPI_Comm_group");
  check(MPI_Comm_group(other, &to), "MPI_Comm_group");
  check(MPI_Group_translate_ranks(from, size, own.data(), to, theirs.data()),
        "MPI_Group_translate_ranks");
  MPI_Group_free(&from);
  MPI_Group_free(&to);
  return theirs;
}

TraceChannel::TraceChannel(MPI_Comm comm) : comm_(comm) {
  if (comm == MPI_COMM_WORLD) return;
  // The first rank of the communicator chooses: its own number, and how many it has chosen.
  static std::int64_t chosen = 0;
  int rank = 0, world_rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
  if (rank == 0) number_ = (std::int64_t{world_rank} << 32) + ++chosen;
  check(MPI_Bcast(&number_, 1, MPI_INT64_T, 0, comm), "MPI_Bcast");
}

trace::Message TraceChannel::begin(int peer, bool sends, std::int64_t bytes, int tag) {
  if (world_ranks_.empty()) world_ranks_ = ranks_in(comm_, MPI_COMM_WORLD);
  std::vector<std::int64_t>& numbers = (sends ? sent_ : received_)[tag];
  numbers.resize(world_ranks_.size());
  const auto index = static_cast<std::size_t>(peer);
  const trace::Recorder& recorder = trace::recorder();
  trace::Message row;
  row.peer = world_ranks_[index];
  row.sends = sends;
  row.clip = recorder.clip;
  row.step = recorder.step;
  row.layer = recorder.layer;
  row.start_ns = trace::now_ns();
  row.bytes = bytes;
  constexpr int tag_shift = 56;  // above all numbers
  row.channel = number_ + (std::int64_t{tag} << tag_shift);
  row.number = numbers[index]++;
  return row;
}

std::vector<trace::Message> TraceChannel::begin(std::span<const Message> sends,
                                                std::span<const Message> receives, int tag) {
  std::vector<trace::Message> rows;
  rows.reserve(sends.size() + receives.size());
  for (const auto& [peer, tensor] : sends) rows.push_back(begin(peer, true, tensor.bytes(), tag));
  for (const auto& [peer, tensor] : receives)
    rows.push_back(begin(peer, false, tensor.bytes(), tag));
  return rows;
}

void record_completed(std::vector<trace::Message> rows) {
  const std::int64_t now = trace::now_ns();
  for (trace::Message& row : rows) {
    row.duration_ns = now - row.start_ns;
    trace::recorder().messages.push_back(row);
  }
}

void PendingMessages::finish() {
  if (const auto pending = std::move(pending_)) pending->finish();
  if (!recorded_.empty()) record_completed(std::exchange(recorded_, {}));
}

}  // namespace reelmesh::comm
