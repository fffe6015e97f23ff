// Device tensors through NCCL: grouped sends and receives on a separate stream, which events order
// against the compute stream. The host waits for nothing, so that exchanges overlap with
// computation and can be captured in a CUDA graph.
#include <nccl.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "comm/cuda/device_transport.hpp"
#include "comm/cuda/pinned.hpp"
#include "comm/group_values.hpp"
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

// 22803 for 2.28.3; 0 if NCCL does not tell.
int version() {
  int number = 0;
  return library().ncclGetVersion(&number) == ncclSuccess ? number : 0;
}

void destroy(ncclComm_t comm) { library().ncclCommDestroy(comm); }
using Communicator = Handle<ncclComm_t, &destroy>;
using Clock = std::chrono::steady_clock;

// Each rank sends a byte to every other. NCCL connects two ranks at their first message, on the
// host, inside ncclGroupEnd, which may block forever.
ncclResult_t connect_all_pairs(ncclComm_t comm, int size, int rank, cudaStream_t stream) {
  const Library& nccl = library();
  // Stream-ordered, like the messages: the memory is freed after they have completed.
  void* memory = nullptr;
  const auto bytes = static_cast<std::size_t>(size);
  cuda::check(cudaMallocAsync(&memory, bytes, stream), "cudaMallocAsync");
  cuda::check(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");
  auto* words = static_cast<std::byte*>(memory);  // one byte per rank
  ncclResult_t status = nccl.ncclGroupStart();
  for (int peer = 0; peer < size && status == ncclSuccess; ++peer) {
    if (peer == rank) continue;
    status = nccl.ncclSend(words + rank, 1, ncclUint8, peer, comm, stream);
    if (status != ncclSuccess) break;
    status = nccl.ncclRecv(words + peer, 1, ncclUint8, peer, comm, stream);
  }
  if (status == ncclSuccess) status = nccl.ncclGroupEnd();
  if (status != ncclSuccess) return status;
  cuda::check(cudaFreeAsync(memory, stream), "cudaFreeAsync");
  return ncclSuccess;
}

class Link {
 public:
  Link(const Group& group, Device device, double seconds);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Device device() const { return device_; }
  double seconds() const { return seconds_; }

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

  Device device_;
  int rank_;
  double seconds_;
  std::optional<Error> failure_;  // the first failure; thrown again by every later call
  cuda::Stream stream_;
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

Link::Link(const Group& group, Device device, double seconds)
    : device_(device), rank_(Group::world().rank()), seconds_(seconds), ready_(cuda::make_event()) {
  cuda::stream(device);  // makes `device` the current one
  // Messages are small kernels that other ranks wait for, so their stream has the highest priority.
  int lowest = 0, greatest = 0;
  cuda::check(cudaDeviceGetStreamPriorityRange(&lowest, &greatest),
              "cudaDeviceGetStreamPriorityRange");
  stream_ = cuda::make_stream(greatest);
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
  stream_.release();
}

// Adds a time-out to a call that blocks the host until other ranks take part. The call runs in a
// detached thread, which is abandoned if it has not returned by the deadline. So `call` captures by
// value, and the handles that it uses are then not destroyed (abandon()).
template <class Call>
void Link::watched(const char* name, Clock::time_point deadline, const char* late, Call call) {
  std::packaged_task<ncclResult_t()> task([call, device = device_] {
    cuda::check(cudaSetDevice(device.cuda), "cudaSetDevice");
    return call();
  });
  std::future<ncclResult_t> done = task.get_future();
  std::thread(std::move(task)).detach();
  if (done.wait_until(deadline) != std::future_status::ready) fail_start(late);
  check(done.get(), name);
}

// Makes the communicator and connects all pairs of ranks. Doing this early has three reasons:
// capture and the first step need the connections, their memory is allocated before the plan looks
// at what is free, and a misconfigured network is found here, not after hours in another stage.
void Link::start(const Group& group) {
  // NCCL would register the buffers of captured messages with other processes and network cards for
  // the lifetime of the graph. But trim_memory_pool() releases the memory of graphs between
  // replays; a replay maps other physical memory to the same addresses.
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
  // Kernels of two communicators may run one after the other. If ranks ran them in different
  // orders, they would wait for each other for ever; so NCCL launches them in the order of the
  // host's calls, which is the same on all ranks.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  ncclUniqueId id = {};
  if (group.rank() == 0) check(library().ncclGetUniqueId(&id), "ncclGetUniqueId");
  id = broadcast_value(group, id, 0);
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds_));
  const int size = group.size(), rank = group.rank();
  const auto made = std::make_shared<ncclComm_t>();
  watched("ncclCommInitRankConfig", deadline, "not all ranks made a communicator",
          [made, size, id, rank] {
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 1;  // when ncclGroupEnd returns, the calls are enqueued
            return library().ncclCommInitRankConfig(made.get(), size, id, rank, &config);
          });
  comm_ = Communicator(*made);
  if (size == 1) return;

  const char* late = "NCCL could not connect all ranks";
  watched("first messages of all ranks", deadline, late,
          [comm = comm_.get(), size, rank, stream = stream_.get()] {
            return connect_all_pairs(comm, size, rank, stream);
          });
  cuda::check(cudaEventRecord(ready_.get(), stream_.get()), "cudaEventRecord");
  while (!cuda::reached(ready_.get())) {
    check_health();
    if (Clock::now() > deadline) fail_start(late);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Link::fail_start(const char* why) {
  give_up(Status::watchdog,
          fmt::format("{} within {:g} s (device.timeout); NCCL_DEBUG=INFO in the environment shows "
                      "which network interfaces it tries, NCCL_SOCKET_IFNAME names those it may",
                      why, seconds_));
}

void Link::give_up(Status status, const std::string& why) {
  failure_.emplace(status,
                   fmt::format("NCCL of rank {} on {}: {}", rank_, to_string(device_), why));
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
  if (waited > seconds_) {
    give_up(
        Status::watchdog,
        fmt::format(
            "its work did not finish within {:g} s (device.timeout), without an error: it waits "
            "for other ranks",
            seconds_));
  }
}

std::size_t Link::begin(std::span<const int> transport_ranks, std::span<const Message> sends,
                        std::span<Message> receives) {
  check_health();
  const cudaStream_t compute = cuda::stream(device_);
  const bool captured = cuda::captures(compute);
  const std::size_t at = begun_++ % max_exchanges_ahead;
  ExchangeEvent& over = completed_[at];
  if (!captured && !over.captured) cuda::wait(over.event.get());

  cuda::check(cudaEventRecord(ready_.get(), compute), "cudaEventRecord");
  cuda::check(cudaStreamWaitEvent(stream_.get(), ready_.get(), 0), "cudaStreamWaitEvent");
  check(library().ncclGroupStart(), "ncclGroupStart");
  for (const auto& [peer, tensor] : sends) {
    check(library().ncclSend(tensor.address_on(device_), static_cast<std::size_t>(tensor.bytes()),
                             ncclUint8, transport_ranks[static_cast<std::size_t>(peer)],
                             comm_.get(), stream_.get()),
          "ncclSend");
  }
  for (auto& [peer, tensor] : receives) {
    check(library().ncclRecv(tensor.address_on(device_), static_cast<std::size_t>(tensor.bytes()),
                             ncclUint8, transport_ranks[static_cast<std::size_t>(peer)],
                             comm_.get(), stream_.get()),
          "ncclRecv");
  }
  check(library().ncclGroupEnd(), "ncclGroupEnd");
  cuda::check(cudaEventRecord(over.event.get(), stream_.get()), "cudaEventRecord");
  over.captured = captured;
  return at;
}

// Makes the compute stream wait. If the event has been recorded again since (the moments are a ring
// buffer), this also waits for later messages. Messages of a capture that is over run with its
// graph only, if there is one.
void Link::join(std::size_t moment) {
  check_health();
  const cudaStream_t compute = cuda::stream(device_);
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

class NcclTransport final : public DeviceTransport {
 public:
  explicit NcclTransport(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  Transport transport() const override { return Transport::nccl; }
  std::shared_ptr<DeviceTransport> another(const Group& group) const override {
    // Earlier versions do not know NCCL_LAUNCH_ORDER_IMPLICIT: one communicator, in one order.
    constexpr int knows_launch_order = 22600;
    if (version() < knows_launch_order) return nullptr;
    return make_nccl_transport(group, link_->device(), link_->seconds());
  }
  std::unique_ptr<PendingExchange> begin(MPI_Comm /*comm*/, std::span<const int> transport_ranks,
                                         std::span<const Message> sends,
                                         std::span<const Message> receives) override {
    return std::make_unique<PendingNcclExchange>(link_, transport_ranks, sends, receives);
  }

 private:
  std::shared_ptr<Link> link_;
};

}  // namespace

std::shared_ptr<DeviceTransport> make_nccl_transport(const Group& group, Device device,
                                                     double seconds) {
  return std::make_shared<NcclTransport>(std::make_shared<Link>(group, device, seconds));
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
