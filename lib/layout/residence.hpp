#pragma once

namespace reelmesh {

/// Where the weights of linear layers are while no layer uses them.
enum class Residence {
  replicated,  ///< packed, whole on each rank
  sharded,     ///< divided among the ranks of a group, which gather them before each use
  host,        ///< on a GPU: in pinned host memory, one copy for the group's ranks of a host; on a
               ///< CPU: in the file, packed before each use
};

}  // namespace reelmesh
