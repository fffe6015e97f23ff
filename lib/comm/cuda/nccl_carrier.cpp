// Device tensors by NCCL: grouped sends and receives on a stream of their own. The compute stream
// is joined to it by events, and the host waits for nothing, so that exchanges run beside what the
// device computes and can be captured in a graph.
#include <nccl.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "comm/cuda/carrier.hpp"
#include "comm/cuda/pinned.hpp"
#include "tensor/cuda/libraries.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::comm {
namespace {

// NCCL, loaded by the first call. Throws Error(unavailable) where that cannot be.
struct Library {
#define REELMESH_NCCL(f) REELMESH_LIBRARY_FUNCTION(cuda::nccl(), f)
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

void destroy(ncclComm_t comm) { library().ncclCommDestroy(comm); }
using Communicator = Handle<ncclComm_t, &destroy>;

class Link {
 public:
  Link(const Group& group, Device device, double seconds);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Throws where NCCL has found an error since.
  void check_health();
  // The same, and when the host has waited too long.
  void watch(double waited);

  // The moment after which all messages that were begun are over.
  std::size_t begin(std::span<const int> places, std::span<const Message> sends,
                    std::span<const Message> receives);
  void join(std::size_t moment);

 private:
  void check(ncclResult_t status, const char* call);
  [[noreturn]] void give_up(Status status, const std::string& why);
  void start(const Group& group);

  // How many exchanges the host may be ahead of the device. Work that is asked for after a message
  // that never arrives would fill the queue of the device at last (some 1000 kernels), and the host
  // would wait there, where nobody watches.
  static constexpr std::size_t most_ahead = 8;
  struct Moment {
    cuda::Event event;
    bool captured = true;  // or never recorded: nothing to wait for
  };

  Device device_;
  int rank_;
  double seconds_;
  std::optional<Error> failure_;  // the first one, again and again
  cuda::Stream stream_;
  cuda::Event asked_;
  std::array<Moment, most_ahead> over_;
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
    : device_(device), rank_(Group::world().rank()), seconds_(seconds), asked_(cuda::make_event()) {
  cuda::stream(device);  // makes it the current one
  // Messages are small kernels that others wait for: they go first.
  int least = 0, greatest = 0;
  cuda::check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
              "cudaDeviceGetStreamPriorityRange");
  stream_ = cuda::make_stream(greatest);
  for (Moment& moment : over_) moment.event = cuda::make_event();
  start(group);
  links().insert(this);
  cuda::watch = watch_all;
}

Link::~Link() {
  links().erase(this);
  if (links().empty()) cuda::watch = nullptr;
  // Nothing is torn down after an error: destroying a communicator takes all ranks of a host, and
  // what is on the stream may never end. This rank is about to end the job.
  if (!failure_ && std::uncaught_exceptions() == 0) return;
  comm_.release();
  stream_.release();
}

// All ranks come to ncclCommInitRankConfig, which has no time-out of its own.
void Link::start(const Group& group) {
  // NCCL would register the memory of captured messages with other processes and network cards, for
  // as long as the graph lives. That of graphs is taken away between replays (give_back_memory) and
  // comes back elsewhere, at the same addresses.
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
  ncclUniqueId id;
  std::string text;
  if (group.rank() == 0) {
    check(library().ncclGetUniqueId(&id), "ncclGetUniqueId");
    text.assign(id.internal, sizeof id.internal);
  }
  text = group.broadcast(text, 0);
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  struct Made {
    ncclComm_t comm = nullptr;
    ncclResult_t status = ncclSuccess;
  };
  std::promise<Made> promise;
  std::future<Made> made = promise.get_future();
  std::thread([promise = std::move(promise), id, device = device_, size = group.size(),
               rank = group.rank()]() mutable {
    Made result;
    cudaSetDevice(device.cuda);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;  // a group of calls that returns is in its stream
    result.status = library().ncclCommInitRankConfig(&result.comm, size, id, rank, &config);
    promise.set_value(result);
  }).detach();
  if (made.wait_for(std::chrono::duration<double>(seconds_)) != std::future_status::ready) {
    give_up(Status::watchdog,
            fmt::format("not all ranks made a communicator within {:g} s", seconds_));
  }
  const Made result = made.get();
  check(result.status, "ncclCommInitRankConfig");
  comm_ = Communicator(result.comm);
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
  if (found != ncclInProgress) check(found, "while messages were under way");
}

void Link::watch(double waited) {
  check_health();
  if (waited > seconds_) {
    give_up(Status::watchdog,
            fmt::format(
                "its work is not done after {:g} s (device.timeout), without an error: it waits "
                "for other ranks",
                seconds_));
  }
}

std::size_t Link::begin(std::span<const int> places, std::span<const Message> sends,
                        std::span<const Message> receives) {
  check_health();
  const cudaStream_t compute = cuda::stream(device_);
  const bool captured = cuda::captures(compute);
  const std::size_t at = begun_++ % most_ahead;
  Moment& over = over_[at];
  if (!captured && !over.captured) cuda::wait(over.event.get());

  cuda::check(cudaEventRecord(asked_.get(), compute), "cudaEventRecord");
  cuda::check(cudaStreamWaitEvent(stream_.get(), asked_.get(), 0), "cudaStreamWaitEvent");
  check(library().ncclGroupStart(), "ncclGroupStart");
  for (const auto& [peer, tensor] : sends) {
    check(library().ncclSend(tensor.address_on(device_), static_cast<std::size_t>(tensor.bytes()),
                             ncclUint8, places[static_cast<std::size_t>(peer)], comm_.get(),
                             stream_.get()),
          "ncclSend");
  }
  for (const auto& [peer, tensor] : receives) {
    check(library().ncclRecv(tensor.address_on(device_), static_cast<std::size_t>(tensor.bytes()),
                             ncclUint8, places[static_cast<std::size_t>(peer)], comm_.get(),
                             stream_.get()),
          "ncclRecv");
  }
  check(library().ncclGroupEnd(), "ncclGroupEnd");
  cuda::check(cudaEventRecord(over.event.get(), stream_.get()), "cudaEventRecord");
  over.captured = captured;
  return at;
}

// Where the moment's event has been recorded anew since, later messages are waited for too.
void Link::join(std::size_t moment) {
  check_health();
  cuda::check(cudaStreamWaitEvent(cuda::stream(device_), over_[moment].event.get(), 0),
              "cudaStreamWaitEvent");
}

class NcclJourney final : public Journey {
 public:
  NcclJourney(std::shared_ptr<Link> link, std::span<const int> places,
              std::span<const Message> sends, std::span<const Message> receives)
      : link_(std::move(link)),
        sends_(sends.begin(), sends.end()),
        receives_(receives.begin(), receives.end()),
        moment_(link_->begin(places, sends, receives)) {}
  // Memory of the tensors goes back on the compute stream, which must not run ahead.
  ~NcclJourney() override {
    try {
      finish();
    } catch (const Error&) {  // whoever did not finish it is unwinding
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

class NcclCarrier final : public Carrier {
 public:
  explicit NcclCarrier(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  Transport transport() const override { return Transport::nccl; }
  std::unique_ptr<Journey> begin(MPI_Comm /*comm*/, std::span<const int> places,
                                 std::span<const Message> sends,
                                 std::span<const Message> receives) override {
    return std::make_unique<NcclJourney>(link_, places, sends, receives);
  }

 private:
  std::shared_ptr<Link> link_;
};

}  // namespace

std::shared_ptr<Carrier> make_nccl_carrier(const Group& group, Device device, double seconds) {
  return std::make_shared<NcclCarrier>(std::make_shared<Link>(group, device, seconds));
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
