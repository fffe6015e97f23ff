#pragma once

namespace reelmesh::comm {

/// Starts a child process that kills this one with SIGKILL, after a message, unless it ends within
/// so many seconds. Time in which both are suspended does not count. Nothing is guarded if the
/// system has no room for another process.
void guard_end(double seconds);

}  // namespace reelmesh::comm
