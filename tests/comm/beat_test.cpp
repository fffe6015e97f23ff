#include "comm/beat.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <type_traits>

#include "base/stop.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "comm/waiting.hpp"

namespace reelmesh::comm {
namespace {

static_assert(std::is_trivially_copyable_v<Beat>, "it is sent as raw bytes");

TEST(ShortText, KeepsWhatFits) {
  EXPECT_TRUE(ShortText<4>().empty());
  EXPECT_TRUE(ShortText<4>(nullptr).empty());
  EXPECT_EQ(ShortText<4>("").string(), "");
  EXPECT_EQ(ShortText<4>("abc").string(), "abc");
  EXPECT_EQ(ShortText<4>("abcdef").string(), "abc");
}

TEST(Beat, SaysWhatARankDoes) {
  EXPECT_EQ(beat_text({}), "no stage");
  const trace::Scope scope(trace::spans::denoise_step);
  const trace::Mark clip(&trace::Recorder::clip, 2), step(&trace::Recorder::step, 14);
  const Beat before = own_beat();
  EXPECT_EQ(beat_text(before), "denoise_step, clip 2, step 14");
  EXPECT_EQ(before.process, getpid());
  EXPECT_EQ(before.host.string(), host_name());
  EXPECT_EQ(before.unsaved, 0);
  measured_memory.used = 3;
  measured_memory.limit = 5;
  measured_memory.others = 1;
  EXPECT_EQ(own_beat().memory.used, 3);
  EXPECT_EQ(own_beat().memory.limit, 5);
  EXPECT_EQ(own_beat().memory.others, 1);
  {
    const stop::UnsavedWork unsaved;
    const trace::Mark layer(&trace::Recorder::layer, 7);
    const WaitMark waiting("MPI_Waitall");
    EXPECT_EQ(beat_text(own_beat()),
              "denoise_step, clip 2, step 14, layer 7, waiting in MPI_Waitall");
    EXPECT_EQ(own_beat().unsaved, 1);
    EXPECT_EQ(own_beat().waits, before.waits);
  }
  EXPECT_EQ(own_beat().waits, before.waits + 1);
}

}  // namespace
}  // namespace reelmesh::comm
