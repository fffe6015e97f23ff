// Two ranks that wait for a message from each other: the watchdog ends them, with a message that
// says where they wait (the test watchdog_deadlock looks for it).
#include "base/log.hpp"
#include "base/trace.hpp"
#include "comm/watchdog.hpp"

int main() {
  using namespace reelmesh;
  const comm::Environment mpi;
  const comm::Group world = comm::Group::world();
  log::set_rank(LaunchedRank{world.rank()});
  const comm::Watchdog watchdog(world, {.timeout = 2});
  const trace::Scope scope(trace::spans::denoise_step);
  const trace::Mark mark(&trace::Recorder::step, 7);
  const comm::Message message{1 - world.rank(), Tensor::empty({1}, DType::float32)};
  world.exchange({}, {&message, 1});
}
