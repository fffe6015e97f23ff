#include "job/shared_requests.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include "job/requests.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

std::vector<ClipRequest> unlike_requests() {
  ClipRequest full{.prompt = "a \"panda\" — «竹»\n",
                   .negative_prompt = "blurred",
                   .where = "prompts.jsonl:3",
                   .settings = {.frames = 21, .guidance = 0.1, .seed = 18446744073709551615ULL},
                   .video = "OUT/job.h5:3",
                   .input_hash = "0123456789abcdef0123456789abcdef"};
  full.settings.strength = 2.0 / 3;
  full.settings.cache = StepCache::read("teacache:0.1");
  ClipRequest ids{.prompt = "name", .token_ids = {5, 0, 32000}, .image = "cat.png"};
  ClipRequest cleaned{.prompt = "x", .clean = false};
  return {full, {.prompt = ""}, ids, cleaned};
}

std::size_t heap_bytes() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(SharedRequests, AreThoseOfTheJob) {
  const std::vector<ClipRequest> requests = unlike_requests();
  const SharedRequests shared(test::world().on_this_host(), requests);
  ASSERT_EQ(shared.size(), requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(request_line(shared.at(i)), request_line(requests[i]));
    EXPECT_EQ(shared.at(i).where, requests[i].where);
  }
}

TEST(SharedRequests, AreNotKeptByEachRank) {
  constexpr std::size_t count = 20000;
  const comm::Group& world = test::world();
  const std::size_t before = heap_bytes();
  Job job;
  for (std::size_t i = 0; i < count; ++i) {
    job.clips.push_back({.prompt = fmt::format("{:>200}", i)});
  }
  const std::int64_t bytes = job.request_bytes();
  EXPECT_GT(bytes, std::int64_t{count} * 200);
  share_requests_together(world, job, count + 1);
  EXPECT_EQ(job.clips.size(), count) << "too few to be worth it";
  share_requests_together(world, job, count);
  EXPECT_EQ(job.clips.empty(), world.size() > 1);
  if (world.size() > 1) {
    EXPECT_LT(heap_bytes(), before + count);
  }
  EXPECT_EQ(job.clip_count(), count);
  EXPECT_EQ(job.request_bytes(), bytes) << "as the same job was planned";
  EXPECT_EQ(job.request(count - 1).prompt, fmt::format("{:>200}", count - 1));
}

}  // namespace
}  // namespace reelmesh
