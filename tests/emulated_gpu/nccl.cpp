// The emulated NCCL: a group of sends and receives is one piece of work of a stream, which ends
// when all of them are done. As with NCCL, work that fails reports it by ncclCommGetAsyncError and
// never ends. Ranks are connected by the host when they first exchange messages, which may fail or
// hang in ncclGroupEnd.
//
//   REELMESH_EMULATED_NCCL_FAIL=RANK:N         the Nth group of that rank (from 1) fails
//   REELMESH_EMULATED_NCCL_FAIL=RANK:connect   connecting fails, in ncclGroupEnd on the host
//   REELMESH_EMULATED_NCCL_HANG=RANK:…         the same hangs, without an error
//   REELMESH_EMULATED_NCCL_COUNTS=FILE         what each process has taken is appended at its end
//
// Communicators and connections take memory of the device, as on eight H100.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <utility>

#include "emulated_gpu/memory.hpp"
#include "emulated_gpu/settings.hpp"
#include "emulated_gpu/stream.hpp"
#include "emulated_gpu/wire.hpp"

using namespace reelmesh::emulated;

namespace {

// Of this process.
struct Counts {
  std::atomic<int> communicators = 0, ways = 0;  // made
  std::atomic<std::int64_t> bytes = 0;           // of all that were made

  ~Counts() {
    const char* file = std::getenv("REELMESH_EMULATED_NCCL_COUNTS");
    if (file == nullptr) return;
    std::ofstream(file, std::ios::app) << "communicators " + std::to_string(communicators) +
                                              " ways " + std::to_string(ways) + " bytes " +
                                              std::to_string(bytes) + "\n";
  }
};
Counts counts;

// Shared with pending work and graphs, which may outlive ncclComm.
struct Communicator {
  Communicator(const std::string& name, int own_rank, int ranks, const std::string& hello,
               int own_device, int own_channels)
      : rank(own_rank),
        size(ranks),
        device(own_device),
        channels(own_channels),
        connections(name, own_rank, ranks, hello) {}
  ~Communicator() { Memory::instance().take_outside(device, -taken); }
  bool take(std::int64_t bytes) {
    if (!Memory::instance().take_outside(device, bytes)) return false;
    taken += bytes;
    counts.bytes += bytes;
    return true;
  }
  int rank, size, device, channels;
  std::int64_t taken = 0;  // bytes
  Connections connections;
  std::mutex one_at_a_time;
  std::atomic<ncclResult_t> error = ncclSuccess;
  std::string why;  // text of the error; written before `error`
  std::atomic<int> groups = 0;
  // Ranks that this one is connected to, to send and to receive; used by the host only.
  std::set<std::pair<int, bool>> met;
};

std::string last_error;  // shared by all threads, as in NCCL

ncclResult_t refuse(ncclResult_t result, std::string why) {
  last_error = std::move(why);
  return result;
}

// Whether the environment variable is "<rank>:<what>"; what: the number of a group, or "connect".
bool named(const char* variable, int rank, const std::string& what) {
  const char* text = std::getenv(variable);
  return text != nullptr && text == std::to_string(rank) + ':' + what;
}

[[noreturn]] void never_end(Communicator& communicator, ncclResult_t error, std::string why) {
  communicator.why = std::move(why);
  communicator.error = error;
  while (true) ::pause();
}

void run_group(Communicator& communicator, const std::vector<Message>& sends,
               const std::vector<Message>& receives, bool captured) {
  const std::scoped_lock lock(communicator.one_at_a_time);
  const std::string group = std::to_string(++communicator.groups);
  if (named("REELMESH_EMULATED_NCCL_FAIL", communicator.rank, group)) {
    never_end(communicator, ncclSystemError, "group " + group + " was made to fail");
  }
  if (named("REELMESH_EMULATED_NCCL_HANG", communicator.rank, group)) {
    never_end(communicator, ncclSuccess, "");
  }
  if (const auto gone = communicator.connections.exchange(sends, receives, captured)) {
    never_end(communicator, ncclRemoteError, "rank " + std::to_string(*gone) + " is gone");
  }
}

// Runs on the host, before a group is enqueued.
ncclResult_t connect(Communicator& communicator, const std::vector<Message>& sends,
                     const std::vector<Message>& receives) {
  constexpr std::int64_t bytes_of_channel = std::int64_t{7} << 20;  // of a way
  int ways = 0;
  for (const auto* messages : {&sends, &receives}) {
    for (const Message& message : *messages) {
      if (message.peer != communicator.rank) {
        ways += communicator.met.insert({message.peer, messages == &sends}).second ? 1 : 0;
      }
    }
  }
  if (ways == 0) return ncclSuccess;
  counts.ways += ways;
  if (!communicator.take(ways * communicator.channels * bytes_of_channel)) {
    return refuse(ncclUnhandledCudaError, "out of memory");
  }
  if (named("REELMESH_EMULATED_NCCL_FAIL", communicator.rank, "connect")) {
    return refuse(ncclSystemError, "connecting was made to fail");
  }
  if (named("REELMESH_EMULATED_NCCL_HANG", communicator.rank, "connect")) {
    never_end(communicator, ncclSuccess, "");
  }
  return ncclSuccess;
}

struct Operation {
  std::shared_ptr<Communicator> communicator;
  cudaStream_t stream;
  bool send;
  Message message;
};
thread_local int depth = 0;
thread_local std::vector<Operation> asked;

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, bool send, Message message);

}  // namespace

struct ncclComm {
  std::shared_ptr<Communicator> communicator;
};

ncclResult_t ncclGetVersion(int* version) {
  *version = 23004;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made = 0;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "reelmesh-nccl-%d-%d",
                static_cast<int>(::getpid()), ++made);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = nullptr;
  if (config->blocking != 1) return refuse(ncclInvalidArgument, "only blocking is emulated");
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  char bus[32] = {};
  cudaDeviceGetPCIBusId(bus, sizeof bus, device);
  constexpr int channels = 32;
  auto communicator = std::make_shared<Communicator>(
      id.internal, rank, ranks, bus, device,
      config->maxCTAs > 0 ? std::min(config->maxCTAs, channels) : channels);
  if (!communicator->take(std::int64_t{200} << 20)) {
    return refuse(ncclUnhandledCudaError, "out of memory");
  }
  ++counts.communicators;
  const char* several = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (several == nullptr || std::string(several) != "1") {
    for (int other = 0; other < ranks; ++other) {
      if (other != rank &&
          communicator->connections.hellos()[static_cast<std::size_t>(other)] == bus) {
        return refuse(ncclInvalidUsage, "two ranks on one GPU");
      }
    }
  }
  *comm = new ncclComm{std::move(communicator)};
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->communicator->error;
  if (*error != ncclSuccess) last_error = comm->communicator->why;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  const std::vector<Operation> operations = std::exchange(asked, {});
  if (operations.empty()) return ncclSuccess;
  const auto& [communicator, stream, first_sends, first] = operations.front();
  std::vector<Message> sends, receives;
  for (const Operation& operation : operations) {
    if (operation.communicator != communicator || operation.stream != stream) {
      return refuse(ncclInvalidUsage, "a group of several communicators or streams");
    }
    (operation.send ? sends : receives).push_back(operation.message);
  }
  const ncclResult_t met = connect(*communicator, sends, receives);
  if (met != ncclSuccess) return met;
  // A graph's nodes run one at a time, as kernels may on a real GPU. So groups of two communicators
  // deadlock if ranks run them in different orders, unless NCCL orders their launches.
  const char* ordered = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &capture);
  const bool captured = capture != cudaStreamCaptureStatusNone;
  const cudaError_t status =
      enqueue(stream, {.name = "ncclGroupEnd",
                       .run = [communicator = communicator, sends, receives,
                               captured] { run_group(*communicator, sends, receives, captured); },
                       .in_launch_order = ordered != nullptr && std::string(ordered) == "1"});
  return status == cudaSuccess ? ncclSuccess
                               : refuse(ncclUnhandledCudaError, cudaGetErrorName(status));
}

namespace {

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, bool send, Message message) {
  if (message.peer < 0 || message.peer >= comm->communicator->size) {
    return refuse(ncclInvalidArgument, "rank " + std::to_string(message.peer));
  }
  const auto block = Memory::instance().find(message.data);
  if (!block || block->free_requested ||
      message.data + message.bytes > block->address + block->bytes) {
    return refuse(ncclInvalidArgument, "not memory of a device");
  }
  ncclGroupStart();
  asked.push_back({comm->communicator, stream, send, message});
  return ncclGroupEnd();
}

}  // namespace

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return add(comm, stream, true, {peer, bytes, count});
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, false, {peer, static_cast<std::byte*>(data), count});
}
