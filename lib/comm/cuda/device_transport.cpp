#include "comm/cuda/device_transport.hpp"

#include <cstdlib>
#include <map>

#include "comm/group_values.hpp"

namespace reelmesh::comm {
namespace {

// A name of this rank's GPU that is unique among all hosts.
std::string name_of_gpu(const Group& group, Device device) {
  // A host is identified by the first rank of the group that runs on it.
  const int host = broadcast_value(group.on_this_host(), group.rank(), 0);
  return fmt::format("{} of the host of rank {}", pci_bus(device), host);
}

// Why the ranks cannot use NCCL, the same text on all of them; empty if they can. may_share_gpu:
// whether several ranks may share a GPU. Collective.
std::string why_not(const Group& group, Device device, bool may_share_gpu) {
  const std::vector<std::string> reasons = group.all_gather(why_no_nccl());
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (!reasons[rank].empty()) return fmt::format("rank {}: {}", rank, reasons[rank]);
  }
  if (may_share_gpu) return "";
  const std::vector<std::string> gpus = group.all_gather(name_of_gpu(group, device));
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto [owner, first] = owners.try_emplace(gpus[rank], rank);
    if (first) continue;
    return fmt::format("ranks {} and {} share the GPU {}", owner->second, rank, gpus[rank]);
  }
  return "";
}

}  // namespace

std::shared_ptr<DeviceTransport> make_device_transport(const Group& group, Device device,
                                                       Transport transport, double seconds) {
  // A group of one rank needs no NCCL communicator; making one takes a second and 0.2 GB.
  const bool alone = transport == Transport::automatic && group.size() == 1;
  if (transport == Transport::mpi || alone) return make_mpi_transport(device);
  // NCCL reads this variable itself. It counts only if the user asked for NCCL explicitly.
  const char* text = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const bool mine =
      transport == Transport::nccl && text != nullptr && std::string_view(text) == "1";
  const bool may_share_gpu = group.max(std::int64_t{mine ? 0 : 1}) == 0;
  const std::string why = why_not(group, device, may_share_gpu);
  require(why.empty() || transport == Transport::automatic, Status::unavailable,
          "device.transport is nccl, but {}; expected a GPU for each rank and NCCL, or mpi (NCCL "
          "2.30 and later take several ranks of a GPU with NCCL_MULTI_RANK_GPU_ENABLE=1)",
          why);
  if (!why.empty()) return make_mpi_transport(device);
  return make_nccl_transport(device, seconds);
}

}  // namespace reelmesh::comm
