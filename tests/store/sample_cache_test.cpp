#include "store/sample_cache.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <set>

#include "base/log.hpp"
#include "base/system.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "store_support.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using test::expect_error;
using testing::ElementsAre;
using testing::HasSubstr;

const Shape sample_latents{3, 4, 6, 7};
const Shape embeds{11, 6};
const Shape frame{5, 9, 3};
const Shape rows{8, 5};

class SampleCache : public FolderTest {
 protected:
  /// Of a video with a caption, as none is written by jobs: all arrays and texts in one file.
  CachedSample sample(std::int64_t index = 7) const {
    return {cache() / fmt::format("{:06}.h5", index),
            {"a panda — «竹»", "clips/a.mp4", "0123456789abcdef0123456789abcdef",
             "vae 1, 9 x 48 x 56", "t5 2"},
            {sample_latents, sample_latents, embeds}};
  }
  CachedSample empty_caption() const {
    return {cache() / "empty.h5", {.text_fingerprint = "t5 2"}, {.prompt_embeds = embeds}};
  }
  std::filesystem::path cache() const { return folder.path() / "a" / "cache"; }

  Sharded cut(const Shape& shape, std::size_t axis, float factor = 1) const {
    const Sharded x = filled(world, Layout::cut(shape, axis, world.size()), DType::float32);
    for (std::int64_t i = 0; i < x.local.numel(); ++i) {
      Tensor(x.local).data<float>()[i] *= factor;
    }
    return x;
  }
  void write(const CachedSample& to) const {
    comm::run_on_first_rank(world, [&] { prepare_cache(to.path.parent_path()); });
    if (to.shapes.latent_mean.empty()) {
      return write_sample(world, to, {.prompt_embeds = cut(embeds, 0)});
    }
    SampleArrays arrays{cut(sample_latents, 2), cut(sample_latents, 0, 0.5F), cut(embeds, 1)};
    if (!to.shapes.first_frame.empty()) arrays.first_frame = cut(frame, 1);
    if (!to.shapes.image_latents.empty()) arrays.image_latents = cut(sample_latents, 3, 0.25F);
    if (!to.shapes.image_rows.empty()) arrays.image_rows = cut(rows, 0);
    write_sample(world, to, arrays);
  }
  static std::optional<SampleFile> open(const CachedSample& expected) {
    std::string problem;
    return SampleFile::open(expected, problem);
  }
  static std::string problem_of(const CachedSample& expected) {
    std::string problem;
    EXPECT_FALSE(SampleFile::open(expected, problem));
    return problem;
  }
  /// Changes the file on the first rank.
  void damage(const std::filesystem::path& path, const std::function<void(std::string&)>& change) {
    world.barrier();
    on_rank_0([&] {
      std::ifstream in(path, std::ios::binary);
      std::string bytes(std::istreambuf_iterator<char>(in), {});
      change(bytes);
      std::ofstream(path, std::ios::binary) << bytes;
    });
  }
};

void expect_values(const Tensor& found, const Shape& shape, const Box& box, float factor) {
  ASSERT_EQ(found.shape(), box.extent);
  Tensor whole = Tensor::empty(shape, DType::float32);
  for (std::int64_t i = 0; i < whole.numel(); ++i) whole.data<float>()[i] = factor * value_at(i);
  Tensor expected = Tensor::empty(box.extent, DType::float32);
  copy_box(box, whole, whole_box(shape), expected, box);
  EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), static_cast<std::size_t>(found.bytes())), 0)
      << to_string(box);
}

TEST_F(SampleCache, GivesAnyBoxOfWhatTheRanksHeld) {
  EXPECT_EQ(problem_of(sample()), "");  // there is none
  write(sample());
  write(empty_caption());
  EXPECT_EQ(folder.listing(), "a/cache/000007.h5 a/cache/empty.h5");
  const auto file = open(sample());
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->is_whole());
  for (const Box& box : {whole_box(sample_latents), Box{{1, 0, 2, 3}, {2, 4, 3, 4}},
                         Box{{2, 1, 0, 0}, {1, 1, 6, 1}}, Box{{3, 0, 0, 0}, {0, 4, 6, 7}},
                         Layout::cut(sample_latents, 2, world.size()).box(world.rank())}) {
    expect_values(file->read(&SampleShapes::latent_mean, box), sample_latents, box, 1);
    expect_values(file->read(&SampleShapes::latent_std, box), sample_latents, box, 0.5F);
  }
  const Box rows = Layout::cut(embeds, 0, world.size()).box(world.rank());
  expect_values(file->read(&SampleShapes::prompt_embeds, rows), embeds, rows, 1);
  const auto caption = open(empty_caption());
  ASSERT_TRUE(caption);
  EXPECT_TRUE(caption->is_whole());
  expect_values(caption->read(&SampleShapes::prompt_embeds, rows), embeds, rows, 1);
  expect_error(Status::internal, [&] {
    file->read(&SampleShapes::latent_mean, {{1, 0, 0, 0}, {3, 4, 6, 7}});
  });
  expect_error(Status::internal,
               [&] { caption->read(&SampleShapes::latent_mean, whole_box(sample_latents)); });
  world.barrier();
}

TEST_F(SampleCache, KeepsWhatAnotherJobMayBeWriting) {
  on_rank_0([&] {
    prepare_cache(cache());
    EXPECT_TRUE(folder.listing().empty());
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    siginfo_t ignored;
    ::waitid(P_PID, child, &ignored, WEXITED | WNOWAIT);  // it has ended, and keeps its number
    struct stat found = {};
    ASSERT_EQ(::stat("/proc/self/ns/pid", &found), 0);
    const auto name = [&](std::string_view host, std::uint64_t names, pid_t process) {
      return fmt::format("0123456789abcdef0123456789abcdef.{}-{}-{}.h5", host, names, process);
    };
    const auto hidden = [](const std::string& of) { return fmt::format(".{}.partial", of); };
    const std::string ended = name(host_name(), found.st_ino, child),
                      own = name(host_name(), found.st_ino, ::getpid()),
                      container = name(host_name(), found.st_ino + 1, child),
                      other = name("other", found.st_ino, child), old = name("old", 1, 1);
    for (const std::string& of : {ended, own, container, other, old}) {
      touch(cache() / of);
      touch(cache() / hidden(of));
    }
    const std::vector<std::string> kept{"notes.h5", "0123456789abcdef0123456789abcdef.h5"};
    for (const std::string& file : kept) touch(cache() / file);
    const auto yesterday = std::filesystem::file_time_type::clock::now() - std::chrono::hours(25);
    for (const std::string& file : {old, hidden(old), kept[0], kept[1]}) {
      std::filesystem::last_write_time(cache() / file, yesterday);
    }
    prepare_cache(cache());
    std::set<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(cache())) {
      left.insert(entry.path().filename().string());
    }
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(left, (std::set<std::string>{kept[0], kept[1], own, hidden(own), container,
                                           hidden(container), other, hidden(other)}));
  });
  on_rank_0([&] {
    touch(folder.path() / "file");
    expect_error(
        Status::cannot_create, [&] { prepare_cache(folder.path() / "file/cache"); }, "file/cache");
  });
}

// Only for models that take it.
TEST_F(SampleCache, HasTheFirstFrame) {
  CachedSample with_frame = sample();
  with_frame.shapes.first_frame = frame;
  write(with_frame);
  const auto file = open(with_frame);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->is_whole());
  for (const Box& box : {whole_box(frame), Box{{1, 2, 0}, {3, 4, 3}}, Box{{0, 0, 0}, {0, 9, 3}}}) {
    expect_values(file->read(&SampleShapes::first_frame, box), frame, box, 1);
  }
  EXPECT_FALSE(open(sample(7)));  // its checksum is of all arrays
  write(sample());
  EXPECT_FALSE(open(with_frame));
  world.barrier();
}

TEST_F(SampleCache, HasWhatEncodersMakeOfTheFirstFrame) {
  CachedSample with_image = sample();
  with_image.shapes.image_latents = sample_latents;
  with_image.shapes.image_rows = rows;
  EXPECT_THAT(
      names_of_arrays(with_image.shapes),
      ElementsAre("latent_mean", "latent_std", "prompt_embeds", "image_latents", "image_rows"));
  write(with_image);
  const auto file = open(with_image);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->is_whole());
  const Box latents = whole_box(sample_latents), part{{1, 0}, {3, rows[1]}};
  expect_values(file->read(&SampleShapes::image_latents, latents), sample_latents, latents, 0.25F);
  expect_values(file->read(&SampleShapes::image_rows, part), rows, part, 1);
  EXPECT_FALSE(open(sample()));
  world.barrier();
}

TEST_F(SampleCache, IsReadByH5pyAndXarray) {
  write(sample());
  const std::string script = REELMESH_SOURCE "/tests/store/read_sample.py";
  EXPECT_EQ(run_on_rank_0(world, fmt::format("/usr/bin/python3 -B '{}' '{}'", script,
                                             sample().path.string())),
            0);
}

TEST_F(SampleCache, NamesAreThoseOfTheContents) {
  const SampleRecord record = sample().record;
  const std::filesystem::path path = cached_path("c", record);
  EXPECT_EQ(path.parent_path(), "c");
  EXPECT_EQ(path.extension(), ".h5");
  EXPECT_EQ(path.stem().string().size(), 32U);
  SampleRecord moved = record;
  moved.file = "moved/a.mp4";
  EXPECT_EQ(cached_path("c", moved), path);
  for (const SampleText& text : compared_sample_texts) {
    SampleRecord other = record;
    (other.*text.text).back() = '~';
    EXPECT_NE(cached_path("c", other), path) << text.name;
  }
}

TEST_F(SampleCache, DoesNotUseWhatIsOfAnotherSample) {
  write(sample());
  for (const SampleText& text : compared_sample_texts) {
    CachedSample other = sample();
    (other.record.*text.text).back() = '~';
    EXPECT_EQ(problem_of(other), fmt::format("has another {} than its name says", text.name));
  }
  CachedSample other = sample();
  other.shapes.latent_std[3] = 8;
  EXPECT_EQ(problem_of(other), "has a latent_std of another shape than [3, 4, 6, 8]");
  world.barrier();
}

// Several jobs may need the same file at once.
TEST_F(SampleCache, KeepsWhatAnotherJobHasMade) {
  write(sample());
  const auto inode = [&] {
    struct stat found {};
    EXPECT_EQ(stat(sample().path.c_str(), &found), 0);
    return found.st_ino;
  };
  const auto first = inode();
  world.barrier();
  write(sample());
  EXPECT_EQ(inode(), first);
  world.barrier();
  damage(sample().path, [](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  world.barrier();
  write(sample());
  EXPECT_TRUE(open(sample())->is_whole());
  EXPECT_EQ(folder.listing(), "a/cache/000007.h5");
  world.barrier();
}

TEST_F(SampleCache, SaysEachFileOnce) {
  EXPECT_EQ(samples_to_make(world, {sample(1), sample(2), sample(1)}),
            (std::vector<std::size_t>{0, 1}));
}

TEST_F(SampleCache, SaysWhichHaveToBeMade) {
  std::vector<CachedSample> samples;
  for (int i = 0; i < 6; ++i) samples.push_back(sample(i));
  samples.push_back(empty_caption());
  EXPECT_EQ(samples_to_make(world, samples), (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6}));
  for (const std::size_t i : {0U, 1U, 2U, 4U, 5U, 6U}) write(samples[i]);
  samples[1].record.prompt = "a cat";
  damage(samples[2].path, [](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  // A value within the last array that is written.
  damage(samples[5].path, [](std::string& bytes) {
    const float value = value_at(0);
    const std::size_t at = bytes.find({reinterpret_cast<const char*>(&value), sizeof value});
    ASSERT_NE(at, bytes.npos);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  });
  testing::internal::CaptureStderr();
  const std::vector<std::size_t> found = samples_to_make(world, samples);
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(found, (std::vector<std::size_t>{1, 2, 3, 5}));
  if (log::rank() == first_rank) {
    EXPECT_THAT(printed,
                HasSubstr("000001.h5 has another prompt than its name says; it is made again"));
    EXPECT_THAT(printed,
                HasSubstr("000002.h5 is damaged, or not a file of encoded samples; it is"));
    EXPECT_THAT(printed, HasSubstr("000005.h5 is damaged; it is made again"));
    EXPECT_EQ(std::ranges::count(printed, '\n'), 3) << printed;
  }
  for (const std::size_t i : found) write(samples[i]);
  EXPECT_TRUE(samples_to_make(world, samples).empty());
}

// A changed byte anywhere either leaves what is read as it was, or makes the file unusable.
TEST_F(SampleCache, IsNotUsedIfDamaged) {
  write(sample());
  std::string bytes;
  damage(sample().path, [&](std::string& found) { bytes = found; });
  on_rank_0([&] {
    int refused = 0;
    for (std::size_t i = 0; i < bytes.size(); i += 151) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      std::ofstream(sample().path, std::ios::binary) << damaged;
      const auto file = open(sample());
      if (!file || !file->is_whole()) {
        ++refused;
        continue;
      }
      const Box whole = whole_box(sample_latents);
      expect_values(file->read(&SampleShapes::latent_mean, whole), sample_latents, whole, 1);
      expect_values(file->read(&SampleShapes::latent_std, whole), sample_latents, whole, 0.5F);
      const Box text = whole_box(embeds);
      expect_values(file->read(&SampleShapes::prompt_embeds, text), embeds, text, 1);
    }
    EXPECT_GT(refused, 20);
    std::ofstream(sample().path, std::ios::binary) << "no HDF5 file";
    EXPECT_EQ(problem_of(sample()), "is damaged, or not a file of encoded samples");
  });
}

TEST_F(SampleCache, SaysThatValuesCannotBeRead) {
  write(sample());
  damage(sample().path, [](std::string& bytes) {
    const float value = value_at(0);
    const std::size_t at = bytes.find({reinterpret_cast<const char*>(&value), sizeof value});
    ASSERT_NE(at, bytes.npos);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  });
  const auto file = open(sample());
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->is_whole());
  expect_error(
      Status::data,
      [&] {
        file->read(&SampleShapes::latent_mean, whole_box(sample_latents));
        file->read(&SampleShapes::prompt_embeds, whole_box(embeds));
      },
      "000007.h5: cannot ");
  world.barrier();
}

TEST_F(SampleCache, CannotBeWrittenBelowAFile) {
  on_rank_0([&] { touch(folder.path() / "a"); });
  std::string message;
  EXPECT_EQ(status_of([&] { write(sample()); }, &message), Status::cannot_create);
  EXPECT_THAT(message, HasSubstr("a/cache: cannot create it: "));
}

}  // namespace
}  // namespace reelmesh
