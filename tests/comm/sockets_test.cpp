#include "comm/sockets.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>

namespace reelmesh::comm {
namespace {

using SocketMessage = std::array<char, 100>;

SocketMessage message(char c) {
  SocketMessage m;
  m.fill(c);
  return m;
}

void wait_readable(const Channel& channel) {
  pollfd ready{channel.descriptor(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 5000), 1);
}

class Connection : public testing::Test {
 protected:
  void SetUp() override {
    const Socket listener = listen_anywhere();
    ASSERT_TRUE(listener);
    EXPECT_FALSE(accept_one(listener));
    client = Channel(connect_to("127.0.0.1", bound_port(listener), 5), sizeof(SocketMessage));
    ASSERT_TRUE(client.open());
    pollfd ready{listener.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 5000), 1);
    server = Channel(accept_one(listener), sizeof(SocketMessage));
    ASSERT_TRUE(server.open());
  }
  Channel client, server;
};

TEST_F(Connection, DeliversWholeMessagesInOrder) {
  SocketMessage found;
  EXPECT_FALSE(server.receive(&found));
  client.send(message('a').data());
  client.send(message('b').data());
  for (const char c : {'a', 'b'}) {
    while (!server.receive(&found)) {
      ASSERT_TRUE(server.open());
      wait_readable(server);
    }
    EXPECT_EQ(found, message(c));
  }
  EXPECT_FALSE(server.receive(&found));
  EXPECT_TRUE(server.open());
}

TEST_F(Connection, DropsMessagesThatAreNotReceivedButNoPartOfOne) {
  for (int i = 0; i < 200000; ++i) client.send(message(static_cast<char>('a' + i % 26)).data());
  SocketMessage found;
  int count = 0;
  for (int idle = 0; idle < 3;) {
    if (!server.receive(&found)) {
      pollfd ready{server.descriptor(), POLLIN, 0};
      idle = poll(&ready, 1, 50) == 1 ? idle : idle + 1;
      continue;
    }
    ++count;
    EXPECT_EQ(found, message(found[0]));
  }
  EXPECT_GT(count, 0);
  EXPECT_LT(count, 200000);
}

TEST_F(Connection, ClosesWithThePeer) {
  client.send(message('z').data());
  client.close();
  SocketMessage found;
  wait_readable(server);
  EXPECT_TRUE(server.receive(&found));
  EXPECT_EQ(found, message('z'));
  wait_readable(server);
  EXPECT_FALSE(server.receive(&found));
  EXPECT_FALSE(server.open());
}

TEST_F(Connection, OfManyThoseAreFoundThatCanBeRead) {
  ReadableSet set, outer;
  EXPECT_TRUE(set.add(server.descriptor(), 7));
  EXPECT_TRUE(set.add(client.descriptor(), 8));
  EXPECT_TRUE(outer.add(set.descriptor(), 9));
  EXPECT_FALSE(set.add(-1, 10));
  EXPECT_TRUE(set.wait(0.001).empty());
  EXPECT_TRUE(outer.wait(0.001).empty());
  client.send(message('a').data());
  EXPECT_EQ(set.wait(5), std::vector<int>{7});
  EXPECT_EQ(outer.wait(5), std::vector<int>{9});
  SocketMessage found;
  EXPECT_TRUE(server.receive(&found));
  EXPECT_TRUE(set.wait(0.001).empty());
  client.close();
  EXPECT_EQ(set.wait(5), std::vector<int>{7}) << "its end can be read";
  // As a child process has it.
  const Socket copy(dup(server.descriptor()));
  set.remove(server.descriptor());
  server.close();
  EXPECT_TRUE(set.wait(0.001).empty());
}

TEST(Sockets, AChannelWithoutConnectionHasNoMessages) {
  Channel channel;
  SocketMessage found;
  EXPECT_FALSE(channel.receive(&found));
  channel.send(found.data());
}

TEST(Sockets, NobodyListens) {
  std::uint16_t port = 0;
  {
    const Socket listener = listen_anywhere();
    port = bound_port(listener);
  }
  EXPECT_FALSE(connect_to("127.0.0.1", port, 1));
  EXPECT_FALSE(connect_to("not an address", port, 1));
  EXPECT_FALSE(own_addresses().empty());
}

}  // namespace
}  // namespace reelmesh::comm
