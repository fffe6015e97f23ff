#pragma once
// Which rank of the text group holds which layers of the text encoder.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

struct DeviceMap {
  std::vector<int> layer_rank;  ///< of every layer
  int embedding_rank = 0;
  int final_norm_rank = 0;

  /// Consecutive layers on one rank; the embedding and the final norm are stages of no layers where
  /// they stand on another rank than the layers next to them.
  struct Stage {
    int rank = 0;
    std::int64_t first = 0, last = 0;  ///< layers [first, last)
    bool embedding = false, final_norm = false;
    friend bool operator==(const Stage&, const Stage&) = default;
  };
  std::vector<Stage> stages() const;  ///< in the order in which a hidden state passes them
};

/// Consecutive layers for each rank such that the most loaded rank holds as few bytes as possible;
/// `embedding_bytes` count on the first rank. rooms: bytes that each rank has for them, or none;
/// where ranks have unlike rooms, the fullest uses as small a part of its room as possible, and
/// ranks without room get nothing. The first rank with room for the embedding has it then.
DeviceMap balanced_device_map(std::int64_t layers, std::int64_t layer_bytes,
                              std::int64_t embedding_bytes, int ranks,
                              const std::vector<std::int64_t>& rooms = {});

/// "0-11:0,12-23:1": layers and the rank that holds them. Error(usage) naming
/// parallel.device-map where a layer is missing, named twice or unknown; Error(unavailable) where a
/// rank is not in the group.
DeviceMap parse_device_map(std::string_view ranges, std::int64_t layers, int ranks);

/// The JSON that accelerate writes: module → rank. The longest name that a module begins with
/// decides. Errors as above; `source` names the file.
DeviceMap device_map_from_json(const std::string& text, const std::string& source,
                               std::int64_t layers, int ranks);

std::string to_string(const DeviceMap& map);  ///< "0-11:0,12-23:1"

}  // namespace reelmesh
