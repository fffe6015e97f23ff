// A rank that throws in a stage: throws MODE STAGE RANK, on 4 ranks. As in the program, it reports
// the error and ends the job; the others must not wait for it.
#include <cstdlib>
#include <string_view>

#include "base/log.hpp"
#include "pipeline/toy_work.hpp"

int main(int argc, char** argv) {
  using namespace reelmesh;
  using namespace reelmesh::pipeline;
  if (argc != 4) return static_cast<int>(Status::usage);
  const comm::Environment mpi;
  const comm::Group world = comm::Group::world();
  log::set_rank(LaunchedRank{world.rank()});
  ParallelRequest request;
  request.mode = std::string_view(argv[1]) == "split" ? Mode::split : Mode::phased;
  ToyJob job{.batches = 4, .inputs = {0, 1}};
  job.throws_in = static_cast<Stage>(std::atoi(argv[2]));
  job.throwing_rank = std::atoi(argv[3]);
  const Roles roles = assign_roles(request, world.size());
  const int embeddings_rank = roles.text.first;
  comm::Watchdog watchdog(world, {.timeout = 10});
  try {
    ToyWork work(world, job, roles, embeddings_rank);
    make_batches_together(world, work,
                          {.roles = roles,
                           .batches = job.batches,
                           .embeddings_rank = embeddings_rank,
                           .queue_bytes = job.queue_bytes,
                           .tail_roles = {}},
                          &watchdog);
  } catch (const Error& error) {
    log::say_here(log::Level::error, error.what(), log::rank());
    comm::abort_all(error.status());
  }
  return 0;
}
