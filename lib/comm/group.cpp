#include "comm/group.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/background.hpp"
#include "base/trace.hpp"

namespace reelmesh::comm {
namespace {

constexpr int exchange_tag = 17;
// MPI counts are ints: larger messages go in pieces.
constexpr std::int64_t piece_bytes = std::int64_t{1} << 30;

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(Status::internal, "{}: {}", call, std::string_view(text.data(), std::size_t(length)));
}

int to_int(std::size_t n, const char* what) {
  expect(n <= std::size_t(std::numeric_limits<int>::max()), "{}: {} bytes in one block", what, n);
  return static_cast<int>(n);
}

}  // namespace

Environment::Environment() {
  setenv("OMPI_MCA_io", "romio321", 0);
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  expect(provided >= MPI_THREAD_FUNNELED, "MPI offers no MPI_THREAD_FUNNELED");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

Environment::~Environment() { MPI_Finalize(); }

void abort_all(Status status) {
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(status));
  std::_Exit(static_cast<int>(status));
}

Group::Group(MPI_Comm comm, bool owned) {
  comm_ = std::shared_ptr<void>(new MPI_Comm(comm), [owned](void* p) {
    auto* handle = static_cast<MPI_Comm*>(p);
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (owned && finalized == 0) MPI_Comm_free(handle);
    delete handle;
  });
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
}

Group Group::world() { return Group(MPI_COMM_WORLD, false); }

MPI_Comm Group::handle() const {
  expect(member(), "a rank that is not in a group used its communicator");
  return *static_cast<MPI_Comm*>(comm_.get());
}

Group Group::on_this_host() const {
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_split_type(handle(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &comm),
        "MPI_Comm_split_type");
  return Group(comm, true);
}

Group Group::range(int first, int count) const {
  expect(first >= 0 && count > 0 && first + count <= size_, "ranks {}..{} of a group of {}", first,
         first + count, size_);
  const bool inside = rank_ >= first && rank_ < first + count;
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_split(handle(), inside ? 0 : MPI_UNDEFINED, rank_, &comm), "MPI_Comm_split");
  return inside ? Group(comm, true) : Group();
}

Group Group::in_order(const std::vector<int>& order) const {
  const auto place = std::find(order.begin(), order.end(), rank_);
  expect(order.size() == static_cast<std::size_t>(size_) && place != order.end(),
         "an order of {} ranks for a group of {}", order.size(), size_);
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_split(handle(), 0, static_cast<int>(place - order.begin()), &comm),
        "MPI_Comm_split");
  return Group(comm, true);
}

void Group::barrier() const { check(MPI_Barrier(handle()), "MPI_Barrier"); }

namespace {

template <class T>
T reduce(const Group& group, T value, MPI_Datatype type, MPI_Op op) {
  T result{};
  check(MPI_Allreduce(&value, &result, 1, type, op, group.handle()), "MPI_Allreduce");
  return result;
}

}  // namespace

std::int64_t Group::max(std::int64_t value) const {
  return reduce(*this, value, MPI_INT64_T, MPI_MAX);
}
double Group::max(double value) const { return reduce(*this, value, MPI_DOUBLE, MPI_MAX); }
double Group::min(double value) const { return reduce(*this, value, MPI_DOUBLE, MPI_MIN); }
double Group::sum(double value) const { return reduce(*this, value, MPI_DOUBLE, MPI_SUM); }

void Group::sum(std::span<std::int64_t> values) const {
  if (size_ == 1) return;
  check(MPI_Allreduce(MPI_IN_PLACE, values.data(), to_int(values.size(), "MPI_Allreduce"),
                      MPI_INT64_T, MPI_SUM, handle()),
        "MPI_Allreduce");
}

std::string Group::broadcast(std::string text, int root) const {
  std::int64_t size = static_cast<std::int64_t>(text.size());
  check(MPI_Bcast(&size, 1, MPI_INT64_T, root, handle()), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(size));
  check(MPI_Bcast(text.data(), to_int(text.size(), "MPI_Bcast"), MPI_BYTE, root, handle()),
        "MPI_Bcast");
  return text;
}

namespace {

struct Blocks {
  std::vector<int> sizes, offsets;
  std::string bytes;

  explicit Blocks(std::vector<int> block_sizes)
      : sizes(std::move(block_sizes)), offsets(sizes.size()) {
    std::size_t total = 0;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      offsets[r] = to_int(total, "gather");
      total += static_cast<std::size_t>(sizes[r]);
    }
    bytes.resize(static_cast<std::size_t>(to_int(total, "gather")));
  }
  std::vector<std::string> split() const {
    std::vector<std::string> blocks;
    blocks.reserve(sizes.size());
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      blocks.push_back(bytes.substr(std::size_t(offsets[r]), std::size_t(sizes[r])));
    }
    return blocks;
  }
};

}  // namespace

std::vector<std::string> Group::all_gather(const std::string& block) const {
  const int mine = to_int(block.size(), "MPI_Allgatherv");
  std::vector<int> sizes(static_cast<std::size_t>(size_));
  check(MPI_Allgather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, handle()), "MPI_Allgather");
  Blocks all(std::move(sizes));
  check(MPI_Allgatherv(block.data(), mine, MPI_BYTE, all.bytes.data(), all.sizes.data(),
                       all.offsets.data(), MPI_BYTE, handle()),
        "MPI_Allgatherv");
  return all.split();
}

std::vector<std::string> Group::gather(const std::string& block, int root) const {
  const int mine = to_int(block.size(), "MPI_Gatherv");
  std::vector<int> sizes(rank_ == root ? static_cast<std::size_t>(size_) : 0);
  check(MPI_Gather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, root, handle()), "MPI_Gather");
  Blocks all(std::move(sizes));
  check(MPI_Gatherv(block.data(), mine, MPI_BYTE, all.bytes.data(), all.sizes.data(),
                    all.offsets.data(), MPI_BYTE, root, handle()),
        "MPI_Gatherv");
  return all.split();
}

namespace {

// Any call into MPI lets all its messages get on; this one does nothing else.
int transfers_under_way = 0;
void help_along() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, exchange_tag, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

void count_transfers(int change) {
  transfers_under_way += change;
  background_work = transfers_under_way > 0 ? help_along : nullptr;
}

}  // namespace

Transfer::Transfer(Transfer&& other) noexcept { *this = std::move(other); }

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  std::swap(requests_, other.requests_);
  std::swap(sent_, other.sent_);
  std::swap(received_, other.received_);
  std::swap(targets_, other.targets_);
  return *this;
}

Transfer::~Transfer() {
  try {
    finish();
  } catch (const Error&) {  // whoever did not finish it is unwinding
  }
}

void Transfer::finish() {
  if (requests_.empty()) return;
  std::vector<MPI_Request> requests = std::exchange(requests_, {});
  count_transfers(-1);
  check(MPI_Waitall(to_int(requests.size(), "MPI_Waitall"), requests.data(), MPI_STATUSES_IGNORE),
        "MPI_Waitall");
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].device().is_cuda()) targets_[i].copy_from(received_[i].tensor);
  }
  sent_.clear();
  received_.clear();
  targets_.clear();
}

Transfer Group::begin_exchange(std::span<const Message> sends,
                               std::span<const Message> receives) const {
  Transfer transfer;
  std::vector<MPI_Request>& requests = transfer.requests_;
  const auto in_pieces = [&](const Message& message, auto&& start) {
    const std::int64_t bytes = message.tensor.bytes();
    for (std::int64_t done = 0; done < bytes; done += piece_bytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      start(static_cast<std::byte*>(message.tensor.raw()) + done,
            static_cast<int>(std::min(piece_bytes, bytes - done)), &request);
      if (requests.empty()) count_transfers(1);
      requests.push_back(request);
    }
  };
  for (const auto& [peer, target] : receives) {
    transfer.targets_.push_back(target);
    transfer.received_.push_back(
        {peer, target.device().is_cuda() ? Tensor::empty(target.shape(), target.dtype()) : target});
  }
  for (const auto& [peer, source] : sends) transfer.sent_.push_back({peer, source.on({})});
  for (const Message& message : transfer.received_) {
    in_pieces(message, [&](void* data, int bytes, MPI_Request* request) {
      check(MPI_Irecv(data, bytes, MPI_BYTE, message.peer, exchange_tag, handle(), request),
            "MPI_Irecv");
    });
  }
  for (const Message& message : transfer.sent_) {
    trace::recorder().bytes_sent += message.tensor.bytes();
    in_pieces(message, [&](void* data, int bytes, MPI_Request* request) {
      check(MPI_Isend(data, bytes, MPI_BYTE, message.peer, exchange_tag, handle(), request),
            "MPI_Isend");
    });
  }
  return transfer;
}

void Group::exchange(std::span<const Message> sends, std::span<const Message> receives) const {
  begin_exchange(sends, receives).finish();
}

}  // namespace reelmesh::comm
