// Products are right while signals arrive (base/stop.hpp).
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/stop.hpp"
#include "ops/linear.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

// Ends the process: with 0 if all products have the bits of the first.
[[noreturn]] void multiply_while_signals_arrive() {
  using namespace std::chrono_literals;
  const Linear layer(test::random_tensor({64, 64}, 1), {});
  const Tensor x = test::random_tensor({48, 64}, 2);
  const Tensor expected = layer(x);
  stop::catch_signals();
  std::atomic<bool> done = false;
  std::thread sender([&] {
    while (!done) {
      ::kill(::getpid(), SIGXCPU);  // may arrive again and again
      std::this_thread::sleep_for(20us);
    }
  });
  bool same = true;
  const auto end = std::chrono::steady_clock::now() + 2s;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 100; ++i) same = same && test::same_bits(layer(x), expected);
  }
  done = true;
  sender.join();
  std::_Exit(same && stop::requested() ? 0 : 1);
}

TEST(Linear, IsRightWhileSignalsArrive) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(multiply_while_signals_arrive(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace reelmesh::ops
