#pragma once
// How the decoder's images lie over the ranks that decode.
#include <vector>

#include "layout/layout.hpp"

namespace reelmesh {

/// Layout of the decoder's images over `ranks` ranks, in latents: [row, column]. Rows are cut, and
/// columns too where the last rank is done earlier then, as when there are more ranks than rows.
Layout decode_layout(std::int64_t rows, std::int64_t columns, int ranks,
                     const std::vector<double>& speeds = {});

}  // namespace reelmesh
