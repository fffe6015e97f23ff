// The engine with stages that do nothing: every batch is made once, in any layout, whatever the
// ranks' speeds, and a job that stops or whose clips fail leaves nothing out.
#include "pipeline/engine.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>

#include "pipeline/toy_work.hpp"
#include "support/ranks.hpp"

namespace reelmesh::pipeline {
namespace {

using ::testing::ElementsAre;

ParallelRequest request(Mode mode, std::optional<int> text, std::optional<int> replicas,
                        std::optional<int> decode) {
  ParallelRequest asked;
  asked.mode = mode;
  asked.text = text;
  asked.replicas = replicas;
  asked.decode = decode;
  return asked;
}

// The layouts that this number of ranks permits.
std::vector<Roles> layouts(int ranks) {
  const std::vector<ParallelRequest> requests{request(Mode::phased, {}, {}, {}),
                                              request(Mode::phased, 1, 1, 1),
                                              request(Mode::phased, 1, {}, ranks),
                                              request(Mode::phased, {}, ranks, {}),
                                              request(Mode::phased, {}, std::max(1, ranks / 2), {}),
                                              request(Mode::split, {}, {}, {}),
                                              request(Mode::split, 1, std::max(1, ranks - 2), 1),
                                              request(Mode::split, 2, 1, {}),
                                              request(Mode::split, 1, 1, 2)};
  std::vector<Roles> all;
  for (const ParallelRequest& asked : requests) {
    try {
      all.push_back(assign_roles(asked, ranks));
    } catch (const Error&) {  // needs more ranks
    }
  }
  return all;
}

std::string text_of(const Roles& roles) {
  return fmt::format("{} text {}, {} replicas of {}, {} decoders of {}",
                     roles.mode == Mode::split ? "split" : "phased", to_string(roles.text),
                     roles.denoise.size(), roles.denoise.front().count, roles.decode.size(),
                     roles.decode.front().count);
}

struct Outcome {
  bool complete = false;
  std::vector<std::size_t> decoded, saved;  ///< on all ranks, sorted
  std::vector<std::int64_t> made_by;        ///< per rank: batches that it denoised
  std::map<std::size_t, std::vector<bool>> failed;
  std::int64_t most_waiting = 0;
  int calls = 0;  ///< of the rank with the most
};

// The numbers of all ranks, sorted.
std::vector<std::size_t> gathered(const comm::Group& world, const std::vector<std::size_t>& mine,
                                  std::size_t batches) {
  std::vector<std::int64_t> counts(batches, 0);
  for (const std::size_t i : mine) ++counts[i];
  world.sum(counts);
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < batches; ++i) {
    all.insert(all.end(), static_cast<std::size_t>(counts[i]), i);
  }
  return all;
}

Outcome run(const ToyJob& job, const Roles& roles, comm::Watchdog* watchdog = nullptr,
            const Roles& tail = {}, std::size_t tail_batches = 0) {
  const comm::Group& world = test::world();
  ::alarm(10);  // ends ranks that wait for each other
  const int embeddings_rank = roles.text.first + roles.text.count - 1;
  ToyWork work(world, job, roles, embeddings_rank);
  work.set_tail(tail);
  Outcome outcome;
  outcome.complete = make_batches_together(world, work,
                                           {.roles = roles,
                                            .batches = job.batches,
                                            .embeddings_rank = embeddings_rank,
                                            .queue_bytes = job.queue_bytes,
                                            .tail_batches = tail_batches,
                                            .tail_roles = tail},
                                           watchdog);
  outcome.decoded = gathered(world, work.decoded, job.batches);
  outcome.saved = gathered(world, work.saved_now, job.batches);
  std::ranges::sort(outcome.saved);
  outcome.saved.erase(std::unique(outcome.saved.begin(), outcome.saved.end()), outcome.saved.end());
  outcome.failed = work.failed_when_decoded;
  outcome.most_waiting = world.max(work.most_waiting);
  outcome.calls = static_cast<int>(world.max(std::int64_t{work.calls}));
  outcome.made_by.assign(static_cast<std::size_t>(world.size()), 0);
  outcome.made_by[static_cast<std::size_t>(world.rank())] = std::ssize(work.denoised);
  world.sum(outcome.made_by);
  stop::reset();
  ::alarm(0);
  return outcome;
}

std::vector<std::size_t> numbers(std::size_t count) {
  std::vector<std::size_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = i;
  return all;
}

TEST(Engine, MakesEachBatchOnceWithAnyDelays) {
  for (const Roles& roles : layouts(test::world().size())) {
    for (const unsigned seed : {0U, 100U, 200U}) {
      ToyJob job{.batches = 7, .saved = {3}, .inputs = {1, 3, 4}, .seed = seed};
      const Outcome outcome = run(job, roles);
      EXPECT_TRUE(outcome.complete) << text_of(roles);
      EXPECT_EQ(outcome.decoded, numbers(7)) << text_of(roles);
      EXPECT_TRUE(outcome.saved.empty());
    }
  }
}

TEST(Engine, OfNoTextsAtAll) {
  for (const Roles& roles : layouts(test::world().size())) {
    ToyJob job{.batches = 3, .saved = {0, 1, 2}, .inputs = {0}, .seed = 1};
    EXPECT_EQ(run(job, roles).decoded, numbers(3)) << text_of(roles);
  }
}

// Embeddings that wait keep to the queue, beside those that a replica waits for.
TEST(Engine, KeepsToTheQueue) {
  for (const Roles& roles : layouts(test::world().size())) {
    const ToyJob job{.batches = 9, .inputs = {2}, .seed = 7, .queue_bytes = 250};
    const Outcome outcome = run(job, roles);
    EXPECT_EQ(outcome.decoded, numbers(9)) << text_of(roles);
    const auto replicas = static_cast<std::int64_t>(roles.denoise.size());
    EXPECT_LE(outcome.most_waiting, roles.mode == Mode::split ? 200 + 100 * replicas : 200)
        << text_of(roles);
  }
}

// With a counter, a replica that is slow makes fewer batches than the others.
TEST(Engine, GivesAFreeReplicaTheNextBatch) {
  const comm::Group& world = test::world();
  if (world.size() < 4) GTEST_SKIP() << "needs two replicas in split mode";
  for (const Mode mode : {Mode::phased, Mode::split}) {
    comm::Watchdog watchdog(world, {});
    const Roles roles =
        assign_roles(request(mode, mode == Mode::split ? std::optional(1) : std::nullopt,
                             mode == Mode::split ? world.size() - 2 : world.size(), {}),
                     world.size());
    const auto slow = static_cast<std::size_t>(roles.denoise.front().first);
    const Outcome outcome =
        run({.batches = 20, .clips = 1, .slow_rank = int(slow)}, roles, &watchdog);
    EXPECT_EQ(outcome.decoded, numbers(20)) << text_of(roles);
    // In turns it would make an equal share.
    EXPECT_LT(outcome.made_by[slow], 20 / std::ssize(roles.denoise)) << text_of(roles);
  }
}

TEST(Engine, MakesTheLastBatchesWithOtherRoles) {
  const int ranks = test::world().size();
  if (ranks < 2) GTEST_SKIP() << "one rank has one replica";
  const Roles many = assign_roles(request(Mode::phased, {}, ranks, {}), ranks);
  const Roles one = assign_roles(request(Mode::phased, {}, {}, {}), ranks);
  for (const std::int64_t queue_bytes : {1000, 150}) {
    const Outcome outcome =
        run({.batches = 7, .seed = 3, .queue_bytes = queue_bytes}, many, nullptr, one, 2);
    EXPECT_EQ(outcome.decoded, numbers(7));
  }
}

// A failed clip is known wherever its batch is worked on; the other clips go on.
TEST(Engine, KnowsOfAFailedClipUntilItsEnd) {
  for (const Roles& roles : layouts(test::world().size())) {
    for (const Stage stage : {Stage::text, Stage::denoise}) {
      ToyJob job{.batches = 4, .seed = 5};
      job.fails_in = stage;
      job.failing_batch = 2;
      const Outcome outcome = run(job, roles);
      EXPECT_TRUE(outcome.complete) << text_of(roles);
      EXPECT_EQ(outcome.decoded, numbers(4)) << text_of(roles);
      for (const auto& [batch, failed] : outcome.failed) {
        EXPECT_THAT(failed, ElementsAre(batch == 2, false)) << text_of(roles) << " " << batch;
      }
    }
  }
}

// Each rank in turn is asked to stop in each of its calls: all ranks end, no batch is made twice,
// and a second job makes all that is left.
TEST(Engine, StopsAtEveryPointAndGoesOn) {
  const comm::Group& world = test::world();
  for (const Roles& roles : layouts(world.size())) {
    const ToyJob job{.batches = 3, .inputs = {1}};
    const int calls = run(job, roles).calls;
    for (int rank = 0; rank < world.size(); ++rank) {
      for (int call = 0; call < calls; ++call) {
        ToyJob stopped = job;
        stopped.stops_at = call;
        stopped.stopping_rank = rank;
        stopped.seed = static_cast<unsigned>(call);
        const Outcome first = run(stopped, roles);
        std::vector<std::size_t> unique = first.decoded;
        unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
        ASSERT_EQ(unique, first.decoded) << text_of(roles) << ", rank " << rank << ", " << call;
        ASSERT_TRUE(!first.complete || first.decoded == numbers(3)) << text_of(roles);
        for (const std::size_t batch : first.saved) {
          ASSERT_FALSE(std::ranges::binary_search(first.decoded, batch)) << text_of(roles);
        }
        ToyJob again = job;
        again.saved = {first.saved.begin(), first.saved.end()};
        ASSERT_EQ(run(again, roles).decoded, numbers(3)) << text_of(roles);
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh::pipeline
