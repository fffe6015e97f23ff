#pragma once
#include <string>

namespace reelmesh {

/// The name of this host, for messages and results.
std::string host_name();

/// Whether text written to this file descriptor may be styled with escape sequences: it is a
/// terminal, and NO_COLOR is not set (https://no-color.org).
bool may_style(int descriptor);

}  // namespace reelmesh
