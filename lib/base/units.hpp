#pragma once
// Sizes and times as users write and read them, and arithmetic that refuses to overflow.
#include <cstdint>
#include <string>
#include <string_view>

namespace reelmesh {

/// "16GiB", "500MB", "1024" → bytes. Throws Error(usage) naming `option`.
std::int64_t parse_bytes(std::string_view text, std::string_view option);

/// "90s", "10min", "2h" → seconds. Throws Error(usage) naming `option`.
double parse_seconds(std::string_view text, std::string_view option);

/// 1610612736 → "1.50 GiB".
std::string format_bytes(double bytes);

/// 75.2 → "1 min 15 s"; below a minute with two digits behind the point.
std::string format_seconds(double seconds);

/// a·b for sizes that come from files: throws Error(data) naming `what` where the product does not
/// fit or a factor is negative.
std::int64_t checked_product(std::int64_t a, std::int64_t b, std::string_view what);

}  // namespace reelmesh
