// Device tensors through MPI. They are copied through pinned host memory, on a separate stream, so
// that the copies overlap with computation. Device addresses are never given to MPI, even if it is
// CUDA-aware: it cannot share memory of cudaMallocAsync between processes by legacy IPC.
#include <mpi.h>

#include "comm/cuda/device_transport.hpp"
#include "comm/cuda/pinned.hpp"
#include "comm/requests.hpp"

namespace reelmesh::comm {
namespace {

// State shared by pending exchanges, which may outlive the transport.
struct SharedState {
  Device device;
  cuda::Stream copies;
  PinnedPool pool;
};

// Messages are posted once the device is done with their tensors. Beginning an exchange does not
// make the host wait for that; post_pending_messages() does, and Group calls it before the next
// exchange begins. So at most one exchange is not yet posted.
class PendingMpiExchange;
PendingMpiExchange* to_post = nullptr;
void post_begun();

class PendingMpiExchange final : public PendingExchange {
 public:
  PendingMpiExchange(std::shared_ptr<SharedState> shared, MPI_Comm comm,
                     std::span<const Message> sends, std::span<const Message> receives)
      : shared_(std::move(shared)), comm_(comm), ready_(cuda::make_event()) {
    for (const Message& m : sends) sends_.push_back({m, nullptr});
    for (const Message& m : receives) receives_.push_back({m, nullptr});
    const cudaStream_t compute = cuda::stream(shared_->device);
    cuda::check(cudaEventRecord(ready_.get(), compute), "cudaEventRecord");
    const cudaStream_t copies = shared_->copies.get();
    cuda::check(cudaStreamWaitEvent(copies, ready_.get(), 0), "cudaStreamWaitEvent");
    for (Part& part : sends_) {
      part.block = shared_->pool.take(part.tensor().bytes());
      copy(part.block->data(), part.address(), part, cudaMemcpyDeviceToHost);
    }
    cuda::check(cudaEventRecord(ready_.get(), copies), "cudaEventRecord");
    for (Part& part : receives_) {
      part.block = shared_->pool.take(part.tensor().bytes());
      requests_.receive(comm_, part.message.peer, part.block->data(), part.tensor().bytes());
    }
    to_post = this;
    post_begun_exchanges = post_begun;
  }

  ~PendingMpiExchange() override {
    try {
      finish();
    } catch (const Error&) {  // not finished by its owner: an exception is already unwinding
    }
    if (to_post == this) to_post = nullptr;
  }

  void post() {
    to_post = nullptr;
    cuda::wait(ready_.get());
    for (Part& part : sends_) {
      requests_.send(comm_, part.message.peer, part.block->data(), part.tensor().bytes());
    }
  }

  void finish() override {
    if (std::exchange(finished_, true)) return;
    post_begun();
    requests_.wait();
    for (Part& part : sends_) give_back(part);
    if (receives_.empty()) return;
    const cudaStream_t copies = shared_->copies.get();
    for (Part& part : receives_) {
      copy(part.address(), part.block->data(), part, cudaMemcpyHostToDevice);
      cuda::check(cudaEventRecord(part.block->free.get(), copies), "cudaEventRecord");
    }
    cuda::check(
        cudaStreamWaitEvent(cuda::stream(shared_->device), receives_.back().block->free.get(), 0),
        "cudaStreamWaitEvent");
    for (Part& part : receives_) give_back(part);
  }

 private:
  struct Part {
    Message message;
    std::unique_ptr<PinnedBlock> block;
    Tensor& tensor() { return message.tensor; }
    void* address() { return tensor().address_on(tensor().device()); }
  };

  void copy(void* into, const void* from, Part& part, cudaMemcpyKind kind) {
    cuda::check(cudaMemcpyAsync(into, from, static_cast<std::size_t>(part.tensor().bytes()), kind,
                                shared_->copies.get()),
                "cudaMemcpyAsync");
  }
  void give_back(Part& part) { shared_->pool.give_back(std::move(part.block)); }

  std::shared_ptr<SharedState> shared_;
  MPI_Comm comm_;
  cuda::Event ready_;  // reached when what is sent may be posted
  std::vector<Part> sends_, receives_;
  bool finished_ = false;
  Requests requests_;  // last member: destroyed (and waited for) before the memory that it uses
};

void post_begun() {
  if (to_post != nullptr) to_post->post();
}

class MpiTransport final : public DeviceTransport {
 public:
  explicit MpiTransport(Device device) : shared_(std::make_shared<SharedState>()) {
    shared_->device = device;
    cuda::stream(device);  // makes `device` the current one
    shared_->copies = cuda::make_stream();
  }
  Transport transport() const override { return Transport::mpi; }
  std::shared_ptr<DeviceTransport> connected(const Group& /*group*/, bool independent) override {
    return independent ? make_mpi_transport(shared_->device) : shared_from_this();
  }
  std::unique_ptr<PendingExchange> begin(MPI_Comm comm, std::span<const int> /*transport_ranks*/,
                                         std::span<const Message> sends,
                                         std::span<const Message> receives) override {
    return std::make_unique<PendingMpiExchange>(shared_, comm, sends, receives);
  }

 private:
  std::shared_ptr<SharedState> shared_;
};

}  // namespace

std::shared_ptr<DeviceTransport> make_mpi_transport(Device device) {
  return std::make_shared<MpiTransport>(device);
}

}  // namespace reelmesh::comm
