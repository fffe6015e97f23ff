// When ranks are lost, wait for each other, or may be stopped, as tables: without threads,
// connections or MPI.
#include "comm/peers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/stop.hpp"

namespace reelmesh::comm {
namespace {

constexpr double timeout = 10;

Beat beat(const char* waiting = nullptr, std::int64_t waits = 0) {
  Beat b;
  b.process = 123;
  b.host = ShortText<64>("node5");
  b.stage = ShortText<24>("denoise_step");
  b.step = 7;
  b.waiting = ShortText<24>(waiting);
  b.waits = waits;
  return b;
}

Beat of_kind(Beat::Kind kind) {
  Beat b = beat();
  b.kind = kind;
  return b;
}

// Rank 0 itself and two others, that were heard at 100 s.
std::vector<Peer> three_ranks(const Beat& last = beat()) {
  std::vector<Peer> peers(3);
  for (Peer& peer : peers) peer.connect(last, 100);
  peers[0].open = false;
  return peers;
}

void hear_all(std::vector<Peer>& peers, const Beat& last, double now) {
  for (Peer& peer : peers) peer.hear(last, now);
}

TEST(Peers, IsLostAfterTheTimeout) {
  std::vector<Peer> peers = three_ranks();
  EXPECT_EQ(find_lost(peers, 110, timeout), std::nullopt);
  peers[0].hear(beat(), 111);
  peers[1].hear(beat(), 109);
  EXPECT_EQ(find_lost(peers, 111, timeout), 2);
  peers[2].extend(5);  // this process was suspended
  EXPECT_EQ(find_lost(peers, 111, timeout), std::nullopt);
  EXPECT_EQ(lost_message(peers[2], timeout),
            "no sign of life for 10.00 s (device.timeout) from process 123 on node5, last seen in "
            "denoise_step, step 7: the process is stopped, or its host or network is lost; the job "
            "ends");
}

TEST(Peers, OneThatNeverConnectedIsNotLost) {
  std::vector<Peer> peers = three_ranks();
  hear_all(peers, beat(), 999);
  peers[2] = {};
  EXPECT_EQ(find_lost(peers, 1000, timeout), std::nullopt);
}

TEST(Peers, ADeadProcessIsLeftToTheLauncherFor5Seconds) {
  std::vector<Peer> peers = three_ranks();
  peers[1].disconnect(101);
  EXPECT_EQ(find_lost(peers, 106, timeout), std::nullopt);
  EXPECT_EQ(find_lost(peers, 106.1, timeout), 1);
  peers[1].extend(3);
  EXPECT_EQ(find_lost(peers, 109, timeout), std::nullopt);
  EXPECT_EQ(find_lost(peers, 109.1, timeout), 1);
  EXPECT_EQ(lost_message(peers[1], timeout),
            "the process has ended without a message (process 123 on node5, last seen in "
            "denoise_step, step 7); the job ends");
}

TEST(Peers, OneThatHasLeftMustEnd) {
  std::vector<Peer> peers = three_ranks();
  const std::span others = std::span(peers).subspan(1);
  peers[1].hear(of_kind(Beat::leaving), 101);
  EXPECT_FALSE(all_have_left(others));
  peers[2].hear(of_kind(Beat::leaving), 101);
  EXPECT_TRUE(all_have_left(others));
  peers[2].disconnect(101.5);
  EXPECT_EQ(peers[2].disconnected, std::nullopt);
  peers[0].hear(beat(), 112);
  EXPECT_EQ(find_lost(peers, 112, timeout), 1) << "its connection is still open";
  EXPECT_THAT(
      lost_message(peers[1], timeout),
      testing::StartsWith("the process has not ended 10.00 s (device.timeout) after its work "
                          "(process 123 on node5"));
  peers[1].disconnect(112);
  EXPECT_EQ(find_lost(peers, 1000, timeout), 0) << "only rank 0 is left";
}

TEST(Peers, OneThatNeverConnectedNeedNotLeave) {
  std::vector<Peer> peers(2);
  EXPECT_TRUE(all_have_left(peers));
  peers[0].connect(beat(), 0);
  EXPECT_FALSE(all_have_left(peers));
}

TEST(Peers, AllWaitIfNoneMakesProgress) {
  std::vector<Peer> peers = three_ranks(beat("MPI_Waitall", 5));
  hear_all(peers, beat("MPI_Waitall", 5), 110.5);
  EXPECT_FALSE(all_wait(peers, 110, timeout));
  EXPECT_TRUE(all_wait(peers, 110.5, timeout));
  EXPECT_EQ(deadlock_message(peers, timeout),
            "all ranks have waited for each other for 10.00 s (device.timeout) without progress; "
            "the job ends. rank 0 in denoise_step, step 7, waiting in MPI_Waitall; rank 1 in "
            "denoise_step, step 7, waiting in MPI_Waitall; rank 2 in denoise_step, step 7, waiting "
            "in MPI_Waitall");
}

TEST(Peers, OneThatComputesOrHasEndedACallMakesProgress) {
  for (const Beat& progress : {beat(), beat("MPI_Waitall", 6)}) {
    std::vector<Peer> peers = three_ranks(beat("MPI_Waitall", 5));
    hear_all(peers, beat("MPI_Waitall", 5), 105);
    peers[1].hear(progress, 106);
    EXPECT_FALSE(all_wait(peers, 115, timeout));
  }
}

TEST(Peers, OneThatWritesAFileWaitsUnlessAPartIsWritten) {
  Beat writing = beat(nullptr, 5);
  writing.stage = ShortText<24>("write");
  std::vector<Peer> peers = three_ranks(beat("MPI_Waitall", 5));
  hear_all(peers, beat("MPI_Waitall", 5), 105);
  peers[1].hear(writing, 105);
  EXPECT_TRUE(all_wait(peers, 115.5, timeout)) << "its disk may be lost";
  EXPECT_THAT(deadlock_message(peers, timeout),
              testing::AllOf(testing::HasSubstr("each other, or for files, for 10.00 s"),
                             testing::HasSubstr("rank 1 in write")));
  writing.waits = 6;
  peers[1].hear(writing, 106);
  EXPECT_FALSE(all_wait(peers, 115.5, timeout));
}

TEST(Peers, OneThatHasLeftWaits) {
  std::vector<Peer> peers = three_ranks(beat("MPI_Waitall", 5));
  peers[1].hear(of_kind(Beat::leaving), 110);
  EXPECT_TRUE(all_wait(peers, 111, timeout));
  peers[1].disconnect(111);
  EXPECT_TRUE(all_wait(peers, 111, timeout));
}

TEST(Peers, OneThatNeverConnectedMayCompute) {
  std::vector<Peer> peers = three_ranks(beat("MPI_Waitall", 5));
  peers[2] = {};
  EXPECT_FALSE(all_wait(peers, 1000, timeout));
}

TEST(Peers, ADeadlockOfManyRanksShowsEight) {
  std::vector<Peer> peers(9);
  for (Peer& peer : peers) peer.connect(beat("MPI_Bcast"), 0);
  EXPECT_THAT(deadlock_message(peers, timeout), testing::EndsWith("waiting in MPI_Bcast; ..."));
  EXPECT_THAT(deadlock_message(peers, timeout), testing::HasSubstr("rank 7 in"));
  EXPECT_THAT(deadlock_message(peers, timeout), testing::Not(testing::HasSubstr("rank 8")));
}

TEST(Peers, AJobMayStopIfAllKnowAndNoneHasUnsavedWork) {
  Beat knows = beat(), unsaved = beat();
  knows.stop_cause = unsaved.stop_cause = stop::time_limit;
  unsaved.unsaved = 1;
  std::vector<Peer> peers = three_ranks(knows);
  EXPECT_TRUE(may_stop(peers));
  for (std::size_t r = 0; r < peers.size(); ++r) {
    peers = three_ranks(knows);
    peers[r].hear(beat(), 101);
    EXPECT_FALSE(may_stop(peers)) << "rank " << r << " does not know of the request";
    peers[r].hear(unsaved, 102);
    EXPECT_FALSE(may_stop(peers)) << "rank " << r << " has unsaved work";
    unsaved.kind = Beat::leaving;
    peers[r].hear(unsaved, 103);
    EXPECT_TRUE(may_stop(peers)) << "rank " << r << " has left";
    unsaved.kind = Beat::alive;
  }
  peers = three_ranks(knows);
  peers[1].disconnect(101);
  EXPECT_FALSE(may_stop(peers)) << "a lost rank ends the job with another status";
  peers = three_ranks(knows);
  peers[2] = {};
  EXPECT_FALSE(may_stop(peers)) << "rank 2 was never connected";
}

}  // namespace
}  // namespace reelmesh::comm
