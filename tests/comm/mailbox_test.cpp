#include "comm/mailbox.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/ranks.hpp"

namespace reelmesh::comm {
namespace {

// All ranks send to all others before any of them polls.
TEST(Mailbox, KeepsTheOrderOfMessagesBetweenTwoRanks) {
  const Group world = test::world();
  Mailbox mailbox(world);
  constexpr std::int64_t each = 40;
  EXPECT_FALSE(mailbox.poll()) << "nothing was sent";
  world.barrier();
  for (std::int64_t i = 0; i < each; ++i) {
    for (int to = 0; to < world.size(); ++to) {
      mailbox.post(to, std::vector<std::int64_t>(static_cast<std::size_t>(1 + i), i));
    }
  }
  std::vector<std::int64_t> next(static_cast<std::size_t>(world.size()), 0);
  for (std::int64_t i = 0; i < each * world.size(); ++i) {
    const ControlMessage message = mailbox.wait(std::chrono::minutes(1)).value();
    std::int64_t& expected = next.at(static_cast<std::size_t>(message.from));
    EXPECT_EQ(std::ssize(message.words), 1 + expected);
    EXPECT_THAT(message.words, testing::Each(expected));
    ++expected;
  }
  EXPECT_THAT(next, testing::Each(each));
  EXPECT_FALSE(mailbox.poll());
}

}  // namespace
}  // namespace reelmesh::comm
