#pragma once
// Parsing and formatting of sizes and times, and multiplication with an overflow check.
#include <cstdint>
#include <string>
#include <string_view>

namespace reelmesh {

/// "16GiB", "500MB", "1024" → bytes. Throws Error(usage) naming `option`.
std::int64_t parse_bytes(std::string_view text, std::string_view option);

/// "90s", "10min", "2h" → seconds; also Slurm's "30:00" (minutes:seconds), "1:30:00" and
/// "2-12:30:00" (days-hours:minutes:seconds). Throws Error(usage) naming `option`.
double parse_seconds(std::string_view text, std::string_view option);

/// 1610612736 → "1.50 GiB".
std::string format_bytes(double bytes);

/// 75.2 → "1 min 15 s"; 7.5 → "7.50 s".
std::string format_seconds(double seconds);

/// The same for predicted times, which may be short: 0.00488 → "4.88 ms".
std::string format_short_seconds(double seconds);

/// a·b for sizes that come from files. Throws Error(data) naming `what` if the product overflows or
/// a factor is negative.
std::int64_t checked_product(std::int64_t a, std::int64_t b, std::string_view what);

}  // namespace reelmesh
