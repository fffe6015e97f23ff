#pragma once
// Several groups of ranks that run at the same time within one mpirun.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "comm/group.hpp"

namespace reelmesh::test {

/// Packs groups into rounds: the sizes of a round add up to at most `ranks`. Returns indices of
/// `sizes`, largest groups first (first fit).
inline std::vector<std::vector<std::size_t>> pack_groups_into_rounds(const std::vector<int>& sizes,
                                                                     int ranks) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return sizes[i]; });
  std::vector<std::vector<std::size_t>> rounds;
  std::vector<int> room;  // ranks left in each round
  for (const std::size_t i : order) {
    const auto found = std::ranges::find_if(room, [&](int left) { return left >= sizes[i]; });
    const auto round = static_cast<std::size_t>(found - room.begin());
    if (found == room.end()) {
      rounds.emplace_back();
      room.push_back(ranks);
    }
    rounds[round].push_back(i);
    room[round] -= sizes[i];
  }
  return rounds;
}

/// A barrier that sleeps between polls, so that waiting ranks leave the cores to others. → whether
/// all ranks came within this time; if not, only the end of the program may follow.
inline bool wait_asleep(const comm::Group& group, double seconds = 1e9) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(group.handle(), &request);
  const double end = MPI_Wtime() + seconds;
  int done = 0;
  for (MPI_Test(&request, &done, MPI_STATUS_IGNORE); done == 0 && MPI_Wtime() < end;) {
    usleep(1000);
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
  return done != 0;
}

}  // namespace reelmesh::test
