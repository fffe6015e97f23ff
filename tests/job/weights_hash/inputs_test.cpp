// Images and videos that clips begin from: what was hashed is what is read later.
#include "job/inputs.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "support/data_folder.hpp"
#include "support/expect_error.hpp"
#include "support/ranks.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using test::world;

TEST(InputsOnRanks, FilesThatHaveChangedAreRefused) {
  struct Case {
    InputKind kind;
    const char *file, *other;
  };
  for (const auto& [kind, file, other] : {Case{InputKind::image, "grey.jpg", "progressive.jpg"},
                                          Case{InputKind::video, "turned.mp4", "upright.mp4"}}) {
    std::optional<test::TempFolder> created;  // shared by all ranks
    if (world().rank() == 0) {
      created.emplace();
      fs::copy_file(test::data_folder() / "media" / file, *created / file);
    }
    const fs::path folder = world().broadcast(created ? created->path().string() : "", 0);
    const auto change = [&](const auto& work) {
      world().barrier();
      if (world().rank() == 0) work();
      world().barrier();
    };
    Job job;
    job.clips.resize(1);
    (kind == InputKind::image ? job.image : job.video) = folder / file;
    const InputFacts facts = check_inputs(world(), job).at(folder / file);
    const ClipInput input{.file = clip_input_file(job, job.clips.front())};
    const auto pixels = [&] {
      return read_pixels(input, facts, {facts.height, facts.width, 1},
                         {{0, 0, 0, 0}, {1, facts.height, facts.width, 3}});
    };
    const Tensor before = pixels();

    // Another file with the same bytes.
    change([&] {
      fs::copy_file(folder / file, folder / "copy");
      fs::rename(folder / "copy", folder / file);
    });
    const Tensor after = pixels();
    EXPECT_EQ(std::memcmp(after.raw(), before.raw(), std::size_t(before.bytes())), 0);

    change([&] {
      fs::copy_file(test::data_folder() / "media" / other, folder / "copy");
      fs::rename(folder / "copy", folder / file);
    });
    test::expect_error(Status::data, pixels, fmt::format("prompt.{}: ", name_of(kind)), file,
                       "changed or replaced", facts.hash);
    world().barrier();  // before the folder is removed
  }
}

}  // namespace
}  // namespace reelmesh
