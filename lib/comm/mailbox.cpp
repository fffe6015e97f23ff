#include "comm/mailbox.hpp"

#include <thread>

#include "comm/requests.hpp"
#include "comm/trace_channel.hpp"

namespace reelmesh::comm {
namespace {

constexpr int tag = 0;

// Control messages are recorded at the level that records all messages.
bool recorded() { return trace::recorder().level >= trace::Level::ops; }

std::int64_t words_bytes(const std::vector<std::int64_t>& words) {
  return static_cast<std::int64_t>(words.size() * sizeof(std::int64_t));
}

}  // namespace

Mailbox::Mailbox(const Group& group) : group_(group.split(0)) {}

Mailbox::~Mailbox() {
  for (Sent& message : sent_) MPI_Wait(&message.request, MPI_STATUS_IGNORE);
}

void Mailbox::post(int to, std::vector<std::int64_t> words) {
  std::erase_if(sent_, [](Sent& message) {
    int received = 0;
    check(MPI_Test(&message.request, &received, MPI_STATUS_IGNORE), "MPI_Test");
    return received != 0;
  });
  Sent& message = sent_.emplace_back(Sent{std::move(words)});
  check(MPI_Isend(message.words.data(), to_int(message.words.size(), "MPI_Isend"), MPI_INT64_T, to,
                  tag, group_.handle(), &message.request),
        "MPI_Isend");
  if (recorded()) record_completed({group_.channel().begin(to, true, words_bytes(message.words))});
}

std::optional<ControlMessage> Mailbox::poll() {
  int arrived = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, tag, group_.handle(), &arrived, &status), "MPI_Iprobe");
  if (arrived == 0) return std::nullopt;
  int words = 0;
  check(MPI_Get_count(&status, MPI_INT64_T, &words), "MPI_Get_count");
  ControlMessage message{status.MPI_SOURCE,
                         std::vector<std::int64_t>(static_cast<std::size_t>(words))};
  check(MPI_Recv(message.words.data(), words, MPI_INT64_T, message.from, tag, group_.handle(),
                 MPI_STATUS_IGNORE),
        "MPI_Recv");
  if (recorded()) {
    record_completed({group_.channel().begin(message.from, false, words_bytes(message.words))});
  }
  return message;
}

std::optional<ControlMessage> Mailbox::wait(std::chrono::milliseconds max) {
  const auto end = std::chrono::steady_clock::now() + max;
  while (true) {
    auto message = poll();
    if (message || std::chrono::steady_clock::now() >= end) return message;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
}

}  // namespace reelmesh::comm
