// Two ranks that wait for a message from each other, or with the argument "messages" for a control
// message: the watchdog ends them, with a message that says where they wait (the tests
// watchdog_deadlock and watchdog_deadlock_of_messages look for it).
#include "base/log.hpp"
#include "base/trace.hpp"
#include "comm/watchdog.hpp"
#include "pipeline/control_messages.hpp"

int main(int argc, char**) {
  using namespace reelmesh;
  const comm::Environment mpi;
  const comm::Group world = comm::Group::world();
  log::set_rank(LaunchedRank{world.rank()});
  const comm::Watchdog watchdog(world, {.timeout = 2});
  const trace::Scope scope(trace::spans::denoise_step);
  const trace::Mark mark(&trace::Recorder::step, 7);
  if (argc > 1) {
    comm::Mailbox mailbox(world);
    pipeline::wait_for_message(mailbox, [] {});
    return 0;
  }
  const comm::Message message{1 - world.rank(), Tensor::empty({1}, DType::float32)};
  world.exchange({}, {&message, 1});
}
