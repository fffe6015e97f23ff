#include "comm/group.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/system.hpp"
#include "base/trace.hpp"
#include "comm/cuda/device_transport.hpp"
#include "comm/requests.hpp"
#include "comm/trace_channel.hpp"
#include "comm/waiting.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::comm {
namespace {

class PendingHostExchange final : public PendingExchange {
 public:
  PendingHostExchange(MPI_Comm comm, std::span<const Message> sends,
                      std::span<const Message> receives, int tag)
      : sends_(sends.begin(), sends.end()), receives_(receives.begin(), receives.end()) {
    for (Message& m : receives_) {
      requests_.receive(comm, m.peer, m.tensor.raw(), m.tensor.bytes(), tag);
    }
    for (const Message& m : sends_) {
      requests_.send(comm, m.peer, m.tensor.raw(), m.tensor.bytes(), tag);
    }
  }
  void finish() override {
    post_pending_messages();
    requests_.wait();
  }

 private:
  std::vector<Message> sends_, receives_;
  Requests requests_;  // last member: destroyed (and waited for) before the memory that it uses
};

// Counts messages that are not sent, and keeps their memory counted.
class PretendedExchange final : public PendingExchange {
 public:
  // ranks: for each rank of the group its rank in the one of which it was made; empty: the same.
  PretendedExchange(int rank, std::span<const int> ranks, std::vector<Message> sends,
                    std::vector<Message> receives)
      : sends_(std::move(sends)), receives_(std::move(receives)) {
    for (const auto* messages : {&sends_, &receives_}) {
      for (const Message& message : *messages) {
        if (!message.tensor.device().is_cuda()) continue;
        const auto peer = static_cast<std::size_t>(message.peer);
        Ledger::current().note_peer(ranks.empty() ? message.peer : ranks[peer]);
      }
    }
    const std::vector<Transfer> out = transfers(sends_), in = transfers(receives_);
    const auto bytes = [](const std::vector<Transfer>& all) {
      return std::accumulate(all.begin(), all.end(), std::int64_t{0},
                             [](std::int64_t sum, const Transfer& one) { return sum + one.bytes; });
    };
    arrival_ = Ledger::current().begin_exchange(rank, bytes(in) > bytes(out) ? in : out);
  }
  void finish() override {
    Ledger::current().wait_until(arrival_);
    sends_.clear();
    receives_.clear();
  }

 private:
  static std::vector<Transfer> transfers(const std::vector<Message>& messages) {
    std::vector<Transfer> all;
    for (const Message& message : messages) all.push_back({message.peer, message.tensor.bytes()});
    return all;
  }

  std::vector<Message> sends_, receives_;
  double arrival_ = 0;
};

// The messages that have elements. Checks that all messages of an exchange are on one device (or
// all on the host); the first one sets `device`.
std::vector<Message> with_elements(std::span<const Message> messages,
                                   std::optional<Device>& device) {
  std::vector<Message> found;
  for (const Message& message : messages) {
    if (message.tensor.empty()) continue;
    const Device message_device = message.tensor.device();
    if (!device) device = message_device;
    expect(message_device == *device, "tensors of one exchange are on {} and {}",
           to_string(message_device), to_string(*device));
    found.push_back(message);
  }
  return found;
}

}  // namespace

Environment::Environment() {
  raise_max_open_files();  // files and sockets of NCCL's connections, and on rank 0 of heartbeats
  // Without mpirun, Open MPI would start a daemon for this process, which takes a quarter of a
  // second, and may survive it and keep its standard output open. Without the daemon, all such
  // processes of a user would share one folder for temporary files, and each removes it at its end,
  // while another one starts; a single rank needs no such folder.
  const bool launched = std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr;
  if (!launched) {
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
  }
  // Here, as environment variables are set before there are threads. NCCL would register the
  // buffers of captured messages with other processes and network cards for the lifetime of the
  // graph. But trim_memory_pool() releases the memory of graphs between replays; a replay maps
  // other physical memory to the same addresses.
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
  // Kernels of two communicators may run one after the other. If ranks ran them in different
  // orders, they would wait for each other for ever; so NCCL launches them in the order of the
  // host's calls, which is the same on all ranks.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  expect(provided >= MPI_THREAD_FUNNELED, "MPI offers no MPI_THREAD_FUNNELED");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

Environment::~Environment() { MPI_Finalize(); }

void join_launch() {
  int called = 0;
  MPI_Initialized(&called);
  if (called != 0 || std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return;
  MPI_Init(nullptr, nullptr);  // MPI_Finalize would wait for ranks that do not fail
}

void abort_all(Status status) {
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(status));
  std::_Exit(static_cast<int>(status));
}

Group::Group(MPI_Comm comm, bool owned, const Group* parent)
    : independent_(std::make_shared<std::optional<Group>>()) {
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
  // All groups of MPI_COMM_WORLD have one channel, since its messages are counted together.
  static const auto channel_of_world = std::make_shared<TraceChannel>(MPI_COMM_WORLD);
  channel_ = comm == MPI_COMM_WORLD ? channel_of_world : std::make_shared<TraceChannel>(comm);
  if (parent == nullptr || parent->device_transport_ == nullptr) return;
  device_transport_ = parent->device_transport_;
  for (const int parent_rank : ranks_in(comm, parent->handle())) {
    transport_ranks_.push_back(parent->transport_ranks_[static_cast<std::size_t>(parent_rank)]);
  }
}

Group Group::world() { return Group(MPI_COMM_WORLD, false); }

Group Group::pretended(int rank, int size) {
  expect(rank >= 0 && rank < size, "rank {} of {} pretended ranks", rank, size);
  Group group;
  group.rank_ = rank;
  group.size_ = size;
  group.pretended_ = true;
  return group;
}

MPI_Comm Group::handle() const {
  expect(member(), "a rank that is not in a group used its communicator");
  expect(!pretended_, "a pretended rank used its communicator");
  return *static_cast<MPI_Comm*>(comm_.get());
}

Group Group::use_device(Device device, Transport transport, double seconds) const {
  Group group = *this;
  group.device_transport_.reset();
  group.transport_ranks_.clear();
  const auto with_gpu = static_cast<int>(sum(device.is_cuda() ? 1.0 : 0.0));
  if (with_gpu == 0) return group;
  require(with_gpu == size_, Status::unavailable,
          "found a GPU on {} of {} ranks, expected one on all or on none", with_gpu, size_);
  if constexpr (cuda_built) {
    group.use(make_device_transport(group, device, transport, seconds));
  }
  return group;
}

void Group::use(std::shared_ptr<DeviceTransport> transport) {
  device_transport_ = std::move(transport);
  transport_ranks_.resize(static_cast<std::size_t>(size_));
  std::iota(transport_ranks_.begin(), transport_ranks_.end(), 0);
  independent_ = std::make_shared<std::optional<Group>>();
}

Group Group::connected() const {
  if (device_transport_ == nullptr || size_ == 1) return *this;
  Group group = *this;
  group.use(device_transport_->connected(group, false));
  return group;
}

Transport Group::transport() const {
  return device_transport_ == nullptr ? Transport::automatic : device_transport_->transport();
}

bool Group::capturable() const { return size_ == 1 || transport() == Transport::nccl; }

Group Group::on_this_host() const {
  if (pretended_) return *this;
  MPI_Comm comm = MPI_COMM_NULL;
  const Waiting waiting("MPI_Comm_split_type");
  check(MPI_Comm_split_type(handle(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &comm),
        "MPI_Comm_split_type");
  return Group(comm, true, this);
}

Group Group::range(int first, int count) const {
  expect(first >= 0 && count > 0 && first + count <= size_, "ranks {}..{} of a group of {}", first,
         first + count, size_);
  const bool within = rank_ >= first && rank_ < first + count;
  if (!pretended_) return split(within ? 0 : -1);
  std::vector<int> colors(static_cast<std::size_t>(size_), -1);
  std::fill_n(colors.begin() + first, count, 0);
  return split(colors);
}

Group Group::split(const std::vector<int>& colors) const {
  expect(std::ssize(colors) == size_, "{} colors for a group of {}", colors.size(), size_);
  const int mine = colors[static_cast<std::size_t>(rank_)];
  if (!pretended_) return split(mine);
  if (mine < 0) return {};
  const auto before = std::count(colors.begin(), colors.begin() + rank_, mine);
  Group group = pretended(static_cast<int>(before),
                          static_cast<int>(std::count(colors.begin(), colors.end(), mine)));
  for (std::size_t rank = 0; rank < colors.size(); ++rank) {
    if (colors[rank] != mine) continue;
    group.transport_ranks_.push_back(transport_ranks_.empty() ? static_cast<int>(rank)
                                                              : transport_ranks_[rank]);
  }
  return group;
}

Group Group::split(int color) const {
  MPI_Comm comm = MPI_COMM_NULL;
  const Waiting waiting("MPI_Comm_split");
  check(MPI_Comm_split(handle(), color < 0 ? MPI_UNDEFINED : color, rank_, &comm),
        "MPI_Comm_split");
  return color < 0 ? Group() : Group(comm, true, this);
}

Group Group::independent() const {
  if (pretended_) return *this;
  if (!independent_->has_value()) {
    Group group = split(0);
    if (device_transport_ != nullptr && size_ > 1) {
      group.use(device_transport_->connected(group, true));
    }
    *independent_ = std::move(group);
  }
  return **independent_;
}

Group Group::in_order(const std::vector<int>& order) const {
  const auto position = std::find(order.begin(), order.end(), rank_);
  expect(order.size() == static_cast<std::size_t>(size_) && position != order.end(),
         "an order of {} ranks for a group of {}", order.size(), size_);
  MPI_Comm comm = MPI_COMM_NULL;
  const Waiting waiting("MPI_Comm_split");
  check(MPI_Comm_split(handle(), 0, static_cast<int>(position - order.begin()), &comm),
        "MPI_Comm_split");
  return Group(comm, true, this);
}

void Group::barrier() const {
  if (pretended_) return;
  const Waiting waiting("MPI_Barrier");
  check(MPI_Barrier(handle()), "MPI_Barrier");
}

void Group::sleeping_barrier() const {
  if (pretended_) return;
  const Waiting waiting("MPI_Ibarrier");
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(handle(), &request), "MPI_Ibarrier");
  for (int done = 0; done == 0;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

namespace {

template <class T>
T reduce(const Group& group, T value, MPI_Datatype type, MPI_Op op) {
  T result{};
  const Waiting waiting("MPI_Allreduce");
  check(MPI_Allreduce(&value, &result, 1, type, op, group.handle()), "MPI_Allreduce");
  return result;
}

}  // namespace

std::int64_t Group::max(std::int64_t value) const {
  return pretended_ ? value : reduce(*this, value, MPI_INT64_T, MPI_MAX);
}
double Group::max(double value) const {
  return pretended_ ? value : reduce(*this, value, MPI_DOUBLE, MPI_MAX);
}
double Group::min(double value) const {
  return pretended_ ? value : reduce(*this, value, MPI_DOUBLE, MPI_MIN);
}
double Group::sum(double value) const {
  return pretended_ ? value * size_ : reduce(*this, value, MPI_DOUBLE, MPI_SUM);
}

namespace {

void reduce_in_place(const Group& group, std::span<std::int64_t> values, MPI_Op op) {
  if (group.size() == 1) return;
  const Waiting waiting("MPI_Allreduce");
  check(MPI_Allreduce(MPI_IN_PLACE, values.data(), to_int(values.size(), "MPI_Allreduce"),
                      MPI_INT64_T, op, group.handle()),
        "MPI_Allreduce");
}

}  // namespace

void Group::sum(std::span<std::int64_t> values) const {
  if (!pretended_) return reduce_in_place(*this, values, MPI_SUM);
  for (std::int64_t& value : values) value *= size_;
}
void Group::max(std::span<std::int64_t> values) const {
  if (!pretended_) reduce_in_place(*this, values, MPI_MAX);
}

std::string Group::broadcast(std::string text, int root) const {
  if (pretended_) return text;
  std::int64_t size = static_cast<std::int64_t>(text.size());
  const Waiting waiting("MPI_Bcast");
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
  if (pretended_) return std::vector<std::string>(static_cast<std::size_t>(size_), block);
  const int mine = to_int(block.size(), "MPI_Allgatherv");
  std::vector<int> sizes(static_cast<std::size_t>(size_));
  const Waiting waiting("MPI_Allgather");
  check(MPI_Allgather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, handle()), "MPI_Allgather");
  Blocks all(std::move(sizes));
  check(MPI_Allgatherv(block.data(), mine, MPI_BYTE, all.bytes.data(), all.sizes.data(),
                       all.offsets.data(), MPI_BYTE, handle()),
        "MPI_Allgatherv");
  return all.split();
}

std::vector<std::string> Group::gather(const std::string& block, int root) const {
  if (pretended_) return rank_ == root ? all_gather(block) : std::vector<std::string>();
  const int mine = to_int(block.size(), "MPI_Gatherv");
  std::vector<int> sizes(rank_ == root ? static_cast<std::size_t>(size_) : 0);
  const Waiting waiting("MPI_Gather");
  check(MPI_Gather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, root, handle()), "MPI_Gather");
  Blocks all(std::move(sizes));
  check(MPI_Gatherv(block.data(), mine, MPI_BYTE, all.bytes.data(), all.sizes.data(),
                    all.offsets.data(), MPI_BYTE, root, handle()),
        "MPI_Gatherv");
  return all.split();
}

PendingMessages Group::begin_exchange(std::span<const Message> sends,
                                      std::span<const Message> receives, int tag) const {
  std::optional<Device> device;
  const std::vector<Message> in = with_elements(receives, device);
  const std::vector<Message> out = with_elements(sends, device);
  if (!device) return {};
  for (const Message& message : out) trace::recorder().bytes_sent += message.tensor.bytes();
  if (pretended_) {
    return {std::make_unique<PretendedExchange>(rank_, transport_ranks_, out, in), {}};
  }
  std::vector<trace::Message> recorded;
  if (trace::recorder().records_messages()) recorded = channel_->begin(out, in, tag);
  post_pending_messages();
  expect(tag == 0 || !device->is_cuda(), "messages with tag {} on {}", tag, to_string(*device));
  if (!device->is_cuda()) {
    return {std::make_unique<PendingHostExchange>(handle(), out, in, tag), std::move(recorded)};
  }
  expect(device_transport_ != nullptr, "an exchange of tensors on {} in a group without a device",
         to_string(*device));
  return {device_transport_->begin(handle(), transport_ranks_, out, in), std::move(recorded)};
}

void Group::exchange(std::span<const Message> sends, std::span<const Message> receives) const {
  begin_exchange(sends, receives).finish();
}

void Group::barrier_with(std::span<const int> peers) const {
  if (pretended_) return;
  const Waiting waiting("barrier_with");
  Requests requests;
  std::vector<std::byte> words(peers.size() + 1);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    requests.receive(handle(), peers[i], &words[i], 1);
    requests.send(handle(), peers[i], &words.back(), 1);
  }
  requests.wait();
}

}  // namespace reelmesh::comm
