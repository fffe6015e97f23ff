// Images and videos that clips begin from: what was hashed is what is read later.
#include "job/inputs.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/hash.hpp"
#include "support/data_folder.hpp"
#include "support/expect_error.hpp"
#include "support/random_tensor.hpp"
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
      return read_pixels(input, {{input.file.path, facts}}, {facts.height, facts.width, 1},
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

TEST(Inputs, AFrameOfAVideoIsAnImage) {
  const fs::path video = test::data_folder() / "media/upright.mp4";
  const auto read = [](const InputFile& file) {
    const InputFacts facts = check_input(file);
    Tensor pixels;
    read_input_frames(file, facts, {0}, [&](std::int64_t, std::int64_t, const Tensor& found) {
      pixels = found.clone();
    });
    return std::pair(facts, pixels);
  };
  const auto named = [&](const char* frame) {
    return image_file(video.string() + "@" + frame, "prompt.image");
  };
  const InputFile whole{InputKind::video, video, "prompt.video"};
  Tensor third;
  read_input_frames(
      whole, check_input(whole), {2},
      [&](std::int64_t, std::int64_t, const Tensor& found) { third = found.clone(); });
  const auto [facts, pixels] = read(named("2"));
  EXPECT_EQ(named("2").kind, InputKind::image);
  EXPECT_EQ(opened_path(named("2")), video);
  EXPECT_TRUE(test::same_bits(pixels, third));
  EXPECT_TRUE(test::same_bits(read(named("-2")).second, third));
  EXPECT_FALSE(test::same_bits(read(named("last")).second, third));
  EXPECT_NE(read(named("last")).first.hash, facts.hash) << "of another frame";
  EXPECT_EQ(probe_input(named("2")).height, facts.height);
  for (const char* frame : {"4", "-5"}) {
    test::expect_error(
        Status::data, [&] { probe_input(named(frame)); },
        "prompt.image: ", "found a video of 4 frames, expected one with this frame");
  }
  EXPECT_FALSE(named("first").frame) << "the name of a file";
  EXPECT_FALSE(image_file(video, "prompt.image").frame);
}

TEST(Inputs, FramesThatAreUsedAreDecodedOnce) {
  const test::TempFolder folder;
  const FileCache known = input_cache(folder / "known", std::chrono::hours(-1));
  const fs::path path = test::data_folder() / "media/upright.mp4";
  const InputFile file{InputKind::video, path, "clips.csv:2"};
  EXPECT_EQ(index_input(file, known).frames, 4);
  const std::vector<FrameSpan> spans{{0, 1}, {2, 9}, {3, 3}};
  for (int i = 0; i < 2; ++i) {
    const std::vector<std::string> problems = check_frames(file, spans, known);
    ASSERT_EQ(problems.size(), 3U);
    EXPECT_EQ(problems[0] + problems[2], "");
    EXPECT_THAT(problems[1], testing::HasSubstr("has 4 frames, expected at least 10"));
  }
  const RegularFile opened = RegularFile::open(path);
  nlohmann::json values = known.find(opened, sample_hash(opened));
  EXPECT_EQ(values.at("decoded"), (nlohmann::json{0, 1, 3, 3}));
  values["decoded"] = nlohmann::json{0, 12};
  known.store(opened, sample_hash(opened), values);
  nlohmann::json deeper = values;
  deeper["decoded"] = {nlohmann::json::array({1})};
  test::expect_error(
      Status::data, [&] { known.store(opened, sample_hash(opened), deeper); }, "known");
  EXPECT_EQ(known.find(opened, sample_hash(opened)), values);
  EXPECT_EQ(check_frames(file, spans, known)[1], "") << "it was decoded again";
}

TEST(Inputs, FactsAreRemembered) {
  const test::TempFolder folder;
  const FileCache known = input_cache(folder / "known", std::chrono::hours(-1));
  const fs::path path = folder / "clip.mp4";
  fs::copy_file(test::data_folder() / "media/upright.mp4", path);
  const InputFile file{InputKind::video, path, "clips.csv:2"};

  const InputFacts found = index_input(file, known);
  EXPECT_EQ(found.frames, 4);
  EXPECT_FALSE(found.state.empty());
  const InputFacts again = index_input(file, known);
  EXPECT_EQ(std::tie(again.frames, again.height, again.width, again.fps, again.hash),
            std::tie(found.frames, found.height, found.width, found.fps, found.hash));
  EXPECT_EQ(again.state, "");  // so its hash is compared before it is decoded
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  const auto read = [&](const InputFacts& facts) {
    read_input_frames(file, facts, {0, 3, 3},
                      [&](std::int64_t place, std::int64_t count, const Tensor&) {
                        places.push_back({place, count});
                      });
  };
  read(again);
  EXPECT_THAT(places, testing::ElementsAre(std::pair(0, 1), std::pair(1, 2)));
  InputFacts other = again;
  other.hash = std::string(Hash::digits, '0');
  test::expect_error(
      Status::data, [&] { read(other); }, "clips.csv:2", path.string(), found.hash);

  // What is remembered is not found again, whatever it says.
  const auto remember = [&](const nlohmann::json& values) {
    const RegularFile opened = RegularFile::open(path);
    known.store(opened, sample_hash(opened), values);
  };
  nlohmann::json values{{"frames", 3}, {"height", 24},       {"width", 32},
                        {"fps", 8.5},  {"hash", found.hash}, {"times", {0, 40, 900}},
                        {"begin", 0},  {"distance", 450}};
  remember(values);
  EXPECT_EQ(index_input(file, known).frames, 3);
  EXPECT_EQ(index_input(file, known).times, (std::vector<std::int32_t>{0, 40, 900}));
  EXPECT_EQ(index_input(file, known).fps, 8.5);
  // Unless it cannot be.
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, nlohmann::json>>{{"frames", 0},
                                                           {"height", "24"},
                                                           {"width", -1},
                                                           {"fps", -8.5},
                                                           {"hash", "0"},
                                                           {"times", {0, 40}},
                                                           {"times", {0, 900, 40}},
                                                           {"times", "0"}}) {
    nlohmann::json bad = values;
    bad[name] = value;
    remember(bad);
    EXPECT_EQ(index_input(file, known).frames, 4) << name;
  }

  fs::copy_file(test::data_folder() / "media/turned.mp4", path,
                fs::copy_options::overwrite_existing);
  const InputFacts replaced = index_input(file, known);
  EXPECT_NE(replaced.hash, found.hash);
  EXPECT_EQ(replaced.hash, check_input(file).hash);

  // A file that cannot be used is refused each time, by the option.
  test::write_file(path, "no video");
  for (int i = 0; i < 2; ++i) {
    test::expect_error(
        Status::data, [&] { index_input(file, known); }, "clips.csv:2: ", "clip.mp4");
  }
  fs::remove(path);
  test::expect_error(
      Status::no_input, [&] { index_input(file, known); }, "clips.csv:2: ");
}

}  // namespace
}  // namespace reelmesh
