#pragma once
// Which rank of the text group holds which layers of the text encoder.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

struct DeviceMap {
  std::vector<int> layer_rank;  ///< for each layer the rank that computes it
  /// For each layer whether its weights are fetched from host memory at each use; empty: none.
  std::vector<bool> on_host;
  int embedding_rank = 0;
  int final_norm_rank = 0;

  /// Consecutive layers on one rank, all or none of them with weights on the host. The embedding
  /// and the final norm are stages without layers if they are on another rank than the layers next
  /// to them.
  struct Stage {
    int rank = 0;
    std::int64_t first = 0, last = 0;  ///< layers [first, last)
    bool embedding = false, final_norm = false;
    bool on_host = false;
    friend bool operator==(const Stage&, const Stage&) = default;
  };
  std::vector<Stage> stages() const;  ///< in the order in which a hidden state passes them
  bool host(std::int64_t layer) const {
    return !on_host.empty() && on_host.at(static_cast<std::size_t>(layer));
  }
};

/// Consecutive layers for each rank such that the maximum of bytes per rank is minimal; the
/// embedding, of which only rows are read, is where the first layer is. available: bytes available
/// on each rank, or empty. If given, the maximum of bytes / available is minimal, and ranks with
/// nothing available get no layers; if all have nothing, `available` is ignored.
DeviceMap balanced_device_map(std::int64_t layers, std::int64_t layer_bytes, int ranks,
                              const std::vector<std::int64_t>& available = {});

/// Parses "0-11:0,12-17:1,18-23:1@host": layers and the rank that computes them; with "@host" their
/// weights are fetched from host memory. Error(usage) naming
/// parallel.device-map if a layer is missing, given twice or out of range, or the text is
/// malformed; Error(unavailable) if a rank is not in the group.
DeviceMap parse_device_map(std::string_view ranges, std::int64_t layers, int ranks);

/// Parses a device map as accelerate writes it, JSON of module → rank. The longest module name that
/// is a prefix decides. Layers on "cpu" or "disk" have their weights on the host and are computed
/// by the rank of the layer before. source: the file's name for messages. Error(data) for wrong
/// JSON and missing modules; Error(unavailable) if a rank is not in the group.
DeviceMap device_map_from_json(const std::string& text, const std::string& source,
                               std::int64_t layers, int ranks);

/// The same map as JSON that accelerate and device_map_from_json() read.
std::string device_map_to_json(const DeviceMap& map);

std::string to_string(const DeviceMap& map);  ///< "0-11:0,12-17:1,18-23:1@host"

}  // namespace reelmesh
