// Device tensors through NCCL: grouped sends and receives on a separate stream, which events order
// against the compute stream. The host waits for nothing, so that exchanges overlap with
// computation and can be captured in a CUDA graph.
#include <nccl.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "comm/cuda/device_transport.hpp"
#include "comm/cuda/pinned.hpp"
#include "comm/group_values.hpp"
#include "comm/trace_channel.hpp"
#include "tensor/connection_memory.hpp"
#include "tensor/cuda/libraries.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::comm {
namespace {

// The functions of NCCL, loaded by the first call. Throws Error(unavailable) if NCCL cannot be
// loaded.
struct Library {
#define REELMESH_NCCL(f) REELMESH_LIBRARY_FUNCTION(cuda::nccl(), f)
  REELMESH_NCCL(ncclGetVersion);
  REELMESH_NCCL(ncclGetUniqueId);
  REELMESH_NCCL(ncclCommInitRankConfig);
  REELMESH_NCCL(ncclCommDestroy);
  REELMESH_NCCL(ncclCommGetAsyncError);
  REELMESH_NCCL(ncclGetErrorString);
  REELMESH_NCCL(ncclGetLastError);
  REELMESH_NCCL(ncclGroupStart);
  REELMESH_NCCL(ncclGroupEnd);
  REELMESH_NCCL(ncclSend);
  REELMESH_NCCL(ncclRecv);
#undef REELMESH_NCCL
};
const Library& library() {
  static const Library functions;
  return functions;
}

// Whether NCCL runs the kernels of two communicators in the order of the host's calls.
bool keeps_launch_order() {
  constexpr int first_version = 22600;  // earlier ones do not know the variable
  int version = 0;
  const char* asked = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");  // set by comm::Environment
  return library().ncclGetVersion(&version) == ncclSuccess && version >= first_version &&
         asked != nullptr && std::string_view(asked) != "0";
}

void destroy(ncclComm_t comm) { library().ncclCommDestroy(comm); }
using Communicator = Handle<ncclComm_t, &destroy>;
using Clock = std::chrono::steady_clock;

constexpr const char* not_connected = "NCCL could not connect all ranks";

// One way of messages between this rank and another.
struct Way {
  int peer = 0;
  bool sends = false;  ///< from this rank
  auto operator<=>(const Way&) const = default;
};

// A byte on each of these ways.
ncclResult_t exchange_bytes(ncclComm_t comm, const std::vector<Way>& ways, cudaStream_t stream) {
  const Library& nccl = library();
  // Stream-ordered, like the messages: the memory is freed after they have completed.
  void* memory = nullptr;
  cuda::check(cudaMallocAsync(&memory, ways.size(), stream), "cudaMallocAsync");
  cuda::check(cudaMemsetAsync(memory, 0, ways.size(), stream), "cudaMemsetAsync");
  auto* byte = static_cast<std::byte*>(memory);
  ncclResult_t status = nccl.ncclGroupStart();
  for (const Way& way : ways) {
    if (status != ncclSuccess) break;
    status = way.sends ? nccl.ncclSend(byte, 1, ncclUint8, way.peer, comm, stream)
                       : nccl.ncclRecv(byte, 1, ncclUint8, way.peer, comm, stream);
    ++byte;
  }
  if (status == ncclSuccess) status = nccl.ncclGroupEnd();
  if (status != ncclSuccess) return status;
  cuda::check(cudaFreeAsync(memory, stream), "cudaFreeAsync");
  return ncclSuccess;
}

// Messages among the ranks of one group.
class Link {
 public:
  struct Settings {
    Device device;
    double seconds = 0;
    // Links may share it: their messages then follow one another.
    std::shared_ptr<const cuda::Stream> stream;
    bool background = false;  // messages beside others, which are not to take many processors
  };
  Link(const Group& group, Settings settings);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Throws if NCCL has reported an asynchronous error, or if there was an earlier failure.
  void check_health();
  // Also throws if the host has waited longer than the time-out. waited: seconds.
  void watch(double waited);

  // Returns the index of the ExchangeEvent at which these and all earlier messages have completed.
  std::size_t begin(std::span<const int> transport_ranks, std::span<const Message> sends,
                    std::span<Message> receives);
  void join(std::size_t moment);

 private:
  void check(ncclResult_t status, const char* call);
  [[noreturn]] void give_up(Status status, const std::string& why);
  [[noreturn]] void fail_start(const char* why);
  void start(const Group& group);
  void connect(const std::vector<Way>& ways, Clock::time_point deadline);
  void connect(std::span<const int> transport_ranks, std::span<const Message> sends,
               std::span<const Message> receives);
  Clock::time_point deadline() const {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(settings_.seconds));
  }
  cudaStream_t stream() const { return settings_.stream->get(); }
  template <class Call>
  void watched(const char* name, Clock::time_point deadline, const char* late, Call call);
  void abandon();

  // How many exchanges the host may enqueue ahead of the device. If a message never arrived, the
  // work enqueued after it would eventually fill the launch queue (about 1000 kernels), and the
  // host would block there without a time-out.
  static constexpr std::size_t max_exchanges_ahead = 8;
  struct ExchangeEvent {
    cuda::Event event;
    bool captured = true;  // captured or never recorded: the host has nothing to wait for
  };

  Settings settings_;
  int rank_;                      // in the job
  int own_, size_;                // rank in the group, and its size
  std::optional<Error> failure_;  // the first failure; thrown again by every later call
  std::set<Way> connected_;
  cuda::Event ready_;
  std::array<ExchangeEvent, max_exchanges_ahead> completed_;
  std::size_t begun_ = 0;
  Communicator comm_;
};

std::set<Link*>& links() {
  static std::set<Link*> all;
  return all;
}

void watch_all(double waited) {
  for (Link* link : links()) link->watch(waited);
}

Link::Link(const Group& group, Settings settings)
    : settings_(std::move(settings)),
      rank_(Group::world().rank()),
      own_(group.rank()),
      size_(group.size()),
      ready_(cuda::make_event()) {
  for (ExchangeEvent& moment : completed_) moment.event = cuda::make_event();
  try {
    start(group);
  } catch (...) {
    abandon();
    throw;
  }
  links().insert(this);
  cuda::watch = watch_all;
}

Link::~Link() {
  links().erase(this);
  if (links().empty()) cuda::watch = nullptr;
  if (failure_ || std::uncaught_exceptions() > 0) abandon();
}

// Leaks communicator and stream after an error: ncclCommDestroy needs all ranks of a host, work on
// the stream may never complete, and a thread of watched() may still use both. This rank is about
// to end the job.
void Link::abandon() {
  comm_.release();
  static std::vector<std::shared_ptr<const cuda::Stream>>& leaked =
      *new std::vector<std::shared_ptr<const cuda::Stream>>;
  leaked.push_back(settings_.stream);
}

// Adds a time-out to a call that blocks the host until other ranks take part. The call runs in a
// detached thread, which is abandoned if it has not returned by the deadline. So `call` captures by
// value, and the handles that it uses are then not destroyed (abandon()).
template <class Call>
void Link::watched(const char* name, Clock::time_point deadline, const char* late, Call call) {
  std::packaged_task<ncclResult_t()> task([call, device = settings_.device] {
    cuda::check(cudaSetDevice(device.cuda), "cudaSetDevice");
    return call();
  });
  std::future<ncclResult_t> done = task.get_future();
  std::thread(std::move(task)).detach();
  if (done.wait_until(deadline) != std::future_status::ready) fail_start(late);
  check(done.get(), name);
}

// Makes the communicator, and sends a byte around the group: a misconfigured network is found here,
// not after hours in another stage.
void Link::start(const Group& group) {
  ncclUniqueId id = {};
  if (own_ == 0) check(library().ncclGetUniqueId(&id), "ncclGetUniqueId");
  id = broadcast_value(group, id, 0);
  const Clock::time_point until = deadline();
  const auto made = std::make_shared<ncclComm_t>();
  watched("ncclCommInitRankConfig", until, "not all ranks made a communicator",
          [made, size = size_, id, rank = own_, background = settings_.background] {
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 1;  // when ncclGroupEnd returns, the calls are enqueued
            if (background) config.maxCTAs = background_channels;
            return library().ncclCommInitRankConfig(made.get(), size, id, rank, &config);
          });
  comm_ = Communicator(*made);

  connect({{(own_ + 1) % size_, true}, {(own_ + size_ - 1) % size_, false}}, until);
  cuda::check(cudaEventRecord(ready_.get(), stream()), "cudaEventRecord");
  while (!cuda::reached(ready_.get())) {
    check_health();
    if (Clock::now() > until) fail_start(not_connected);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// NCCL connects two ranks at their first message, on the host, inside ncclGroupEnd, which may block
// forever. So the first messages are bytes of their own, with a time-out. Connections take memory
// and files, so each rank is connected only to those with which it exchanges something, and to a
// limited number at a time. Which these are depends on the distance alone: two ranks meet in the
// same round, so that rounds cannot wait for one another in a circle.
void Link::connect(const std::vector<Way>& ways, Clock::time_point until) {
  constexpr int distances_of_round = 32;
  std::map<int, std::vector<Way>> rounds;
  for (const Way& way : ways) {
    if (way.peer == own_ || !connected_.insert(way).second) continue;
    const int distance = std::abs(way.peer - own_);
    rounds[(std::min(distance, size_ - distance) - 1) / distances_of_round].push_back(way);
  }
  for (const auto& [round, together] : rounds) {
    watched("first messages of ranks", until, not_connected,
            [comm = comm_.get(), together = together, stream = stream()] {
              return exchange_bytes(comm, together, stream);
            });
  }
}

// Before the messages of an exchange, which have all the same ranks on both sides.
void Link::connect(std::span<const int> transport_ranks, std::span<const Message> sends,
                   std::span<const Message> receives) {
  std::vector<Way> ways;
  for (const Message& message : sends) {
    ways.push_back({transport_ranks[static_cast<std::size_t>(message.peer)], true});
  }
  for (const Message& message : receives) {
    ways.push_back({transport_ranks[static_cast<std::size_t>(message.peer)], false});
  }
  connect(ways, deadline());
}

void Link::fail_start(const char* why) {
  give_up(Status::watchdog,
          fmt::format("{} within {:g} s (device.timeout); NCCL_DEBUG=INFO in the environment shows "
                      "which network interfaces it tries, NCCL_SOCKET_IFNAME names those it may",
                      why, settings_.seconds));
}

void Link::give_up(Status status, const std::string& why) {
  failure_.emplace(
      status, fmt::format("NCCL of rank {} on {}: {}", rank_, to_string(settings_.device), why));
  throw *failure_;
}

void Link::check(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  const char* last = library().ncclGetLastError(comm_.get());
  give_up(Status::internal,
          fmt::format("{}: {}{}{}", call, library().ncclGetErrorString(status),
                      last == nullptr || *last == '\0' ? "" : "; ", last == nullptr ? "" : last));
}

void Link::check_health() {
  if (failure_) throw *failure_;
  ncclResult_t found = ncclSuccess;
  check(library().ncclCommGetAsyncError(comm_.get(), &found), "ncclCommGetAsyncError");
  if (found != ncclInProgress) check(found, "while messages were pending");
}

void Link::watch(double waited) {
  check_health();
  if (waited > settings_.seconds) {
    give_up(
        Status::watchdog,
        fmt::format(
            "its work did not finish within {:g} s (device.timeout), without an error: it waits "
            "for other ranks",
            settings_.seconds));
  }
}

std::size_t Link::begin(std::span<const int> transport_ranks, std::span<const Message> sends,
                        std::span<Message> receives) {
  check_health();
  const cudaStream_t compute = cuda::stream(settings_.device);
  const bool captured = cuda::captures(compute);
  // A capture has the messages of calls that were made before.
  if (!captured) connect(transport_ranks, sends, receives);
  const std::size_t at = begun_++ % max_exchanges_ahead;
  ExchangeEvent& over = completed_[at];
  if (!captured && !over.captured) cuda::wait(over.event.get());

  cuda::check(cudaEventRecord(ready_.get(), compute), "cudaEventRecord");
  cuda::check(cudaStreamWaitEvent(stream(), ready_.get(), 0), "cudaStreamWaitEvent");
  check(library().ncclGroupStart(), "ncclGroupStart");
  for (const auto& [peer, tensor] : sends) {
    check(library().ncclSend(
              tensor.address_on(settings_.device), static_cast<std::size_t>(tensor.bytes()),
              ncclUint8, transport_ranks[static_cast<std::size_t>(peer)], comm_.get(), stream()),
          "ncclSend");
  }
  for (auto& [peer, tensor] : receives) {
    check(library().ncclRecv(
              tensor.address_on(settings_.device), static_cast<std::size_t>(tensor.bytes()),
              ncclUint8, transport_ranks[static_cast<std::size_t>(peer)], comm_.get(), stream()),
          "ncclRecv");
  }
  check(library().ncclGroupEnd(), "ncclGroupEnd");
  cuda::check(cudaEventRecord(over.event.get(), stream()), "cudaEventRecord");
  over.captured = captured;
  return at;
}

// Makes the compute stream wait. If the event has been recorded again since (the moments are a ring
// buffer), this also waits for later messages. Messages of a capture that is over run with its
// graph only, if there is one.
void Link::join(std::size_t moment) {
  check_health();
  const cudaStream_t compute = cuda::stream(settings_.device);
  const ExchangeEvent& over = completed_[moment];
  if (over.captured && !cuda::captures(compute)) return;
  cuda::check(cudaStreamWaitEvent(compute, over.event.get(), 0), "cudaStreamWaitEvent");
}

class PendingNcclExchange final : public PendingExchange {
 public:
  PendingNcclExchange(std::shared_ptr<Link> link, std::span<const int> transport_ranks,
                      std::span<const Message> sends, std::span<const Message> receives)
      : link_(std::move(link)),
        sends_(sends.begin(), sends.end()),
        receives_(receives.begin(), receives.end()),
        moment_(link_->begin(transport_ranks, sends_, receives_)) {}
  // The tensors' memory is freed in the order of the compute stream, which must first wait for the
  // messages.
  ~PendingNcclExchange() override {
    try {
      finish();
    } catch (const Error&) {  // not finished by its owner: an exception is already unwinding
      cudaGetLastError();     // of a wait in a capture that has failed
    }
  }
  void finish() override {
    if (!std::exchange(finished_, true)) link_->join(moment_);
  }

 private:
  std::shared_ptr<Link> link_;
  std::vector<Message> sends_, receives_;
  std::size_t moment_;
  bool finished_ = false;
};

// The links of this process, which stay until its end.
class Links {
 public:
  Links(Device device, double seconds)
      : device_(device), seconds_(seconds), stream_(make_stream()), background_(make_stream()) {}

  std::shared_ptr<Link> of(const Group& group, bool background) {
    const std::pair ranks(background, ranks_in(group.handle(), Group::world().handle()));
    const auto found = links_.find(ranks);
    if (found != links_.end()) return found->second;
    auto made = std::make_shared<Link>(
        group, Link::Settings{device_, seconds_, background ? background_ : stream_, background});
    links_.emplace(ranks, made);
    return made;
  }

 private:
  // Messages are small kernels that other ranks wait for, so they have the highest priority.
  std::shared_ptr<const cuda::Stream> make_stream() const {
    cuda::stream(device_);  // makes it the current one
    int lowest = 0, greatest = 0;
    cuda::check(cudaDeviceGetStreamPriorityRange(&lowest, &greatest),
                "cudaDeviceGetStreamPriorityRange");
    return std::make_shared<const cuda::Stream>(cuda::make_stream(greatest));
  }

  Device device_;
  double seconds_;
  std::shared_ptr<const cuda::Stream> stream_, background_;
  std::map<std::pair<bool, std::vector<int>>, std::shared_ptr<Link>> links_;
};

class NcclTransport final : public DeviceTransport {
 public:
  // link: null until a group is connected.
  explicit NcclTransport(std::shared_ptr<Links> links, std::shared_ptr<Link> link = nullptr)
      : links_(std::move(links)), link_(std::move(link)) {}
  Transport transport() const override { return Transport::nccl; }
  std::shared_ptr<DeviceTransport> connected(const Group& group, bool independent) override {
    // Without an order of launches there is one communicator, whose messages have one.
    const bool background = independent && keeps_launch_order();
    return std::make_shared<NcclTransport>(links_, links_->of(group, background));
  }
  std::unique_ptr<PendingExchange> begin(MPI_Comm /*comm*/, std::span<const int> transport_ranks,
                                         std::span<const Message> sends,
                                         std::span<const Message> receives) override {
    expect(link_ != nullptr, "an exchange of tensors on devices in a group that is not connected");
    return std::make_unique<PendingNcclExchange>(link_, transport_ranks, sends, receives);
  }

 private:
  std::shared_ptr<Links> links_;
  std::shared_ptr<Link> link_;
};

}  // namespace

std::shared_ptr<DeviceTransport> make_nccl_transport(Device device, double seconds) {
  return std::make_shared<NcclTransport>(std::make_shared<Links>(device, seconds));
}

std::string why_no_nccl() {
  try {
    library();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace reelmesh::comm
