#pragma once

namespace reelmesh {

/// A rank in the launcher's order, that of the world communicator: in messages, and where a plan
/// says which process takes a rank. Ranks of a plan and of a group are plain numbers; a plan's are
/// those of the group that `run` orders by it.
enum class LaunchedRank : int {};

/// Prints messages that are the same on all ranks, and runs the watchdog.
inline constexpr LaunchedRank first_rank{0};

constexpr int number_of(LaunchedRank rank) { return static_cast<int>(rank); }

}  // namespace reelmesh
