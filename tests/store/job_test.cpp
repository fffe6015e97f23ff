#include "store/job.hpp"

#include <sys/resource.h>

#include <csignal>

#include "comm/together.hpp"
#include "store/check.hpp"
#include "store/clip.hpp"
#include "store/hdf5.hpp"
#include "store/output_folder.hpp"
#include "store/saved_job.hpp"
#include "store_support.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

class JobFile : public FolderTest {};

JobClip clip(ClipState state, const char* prompt, std::uint64_t seed) {
  JobClip c;
  c.state = std::move(state);
  c.request = fmt::format(R"({{"prompt":"{}"}})", prompt);
  c.prompt = prompt;
  c.seed = seed;
  c.fps = 8;
  c.video = {3, 4, 6, 3};
  return c;
}

JobRecord job_record() {
  JobRecord r;
  r.program = "reelmesh";
  r.version = "0.1.0";
  r.revision = "abc1234";
  r.options = {{"model.path", "models/tiny"}, {"prompt.text", "two\nlines"}};
  r.plan = "phased, 1 rank";
  r.plan_json = R"({"ranks": 1})";
  r.tuned = R"({"kept": 0})";
  r.planned_again = {"rank 1 was short; sharded weights"};
  r.hosts = {"node-1", "nœud-02"};
  r.start = "2026-01-31T12:00:00Z";
  r.end = "2026-01-31T12:34:56Z";
  r.predicted_seconds = 2000.5;
  r.measured_seconds = 2096.25;
  r.status = "failed";
  r.clips = {clip({ClipState::complete, {}}, "one", 0),
             clip({ClipState::preview, {}}, "zwei größe", 1),
             clip({ClipState::failed, "NaN in größe"}, "three", 18446744073709551615ULL)};
  r.trace = true;
  Provenance& from = r.provenance;
  from.command = {"reelmesh", "run", "--prompt.text", "two\nlines"};
  from.working_folder = "/home/me";
  from.options_given = {"prompt.text = two\nlines"};
  from.git_revision = "abc1234";
  from.git_changed = true;
  from.compiler = "GNU 12.2.0";
  from.compiler_flags = "-O3";
  from.build_type = "Release";
  from.libraries = {"HDF5 1.10.8", "fmt 9.1.0"};
  from.model_path = "/home/me/models/tiny";
  from.weights_hash = "0123";
  from.products = "bfloat16 (AVX512_BF16)";
  from.environment = {"OMP_NUM_THREADS=1"};
  from.hosts = {{"node-1", "fast", "AVX2", "cpu", ""}, {"nœud-02", "", "", "H100", "550.1"}};
  return r;
}

TEST_F(JobFile, LinksTheClipsAndIsReadByOtherPrograms) {
  on_rank_0([&] { OutputFolder(folder.path() / "out", Existing::fail).prepare(); });
  const Layout layout = Layout::cut({3, 4, 6, 3}, 1, world.size());
  const Sharded video = filled(world, layout, DType::uint8);
  for (int i = 0; i < 3; ++i) {  // the last is not of this job: its clip has failed
    ClipRecord made;
    made.index = i;
    made.settings.fps = 8;
    write_clip(world, folder.path() / "out", made, {.video = video}, false);
  }
  on_rank_0([&] { write_job(folder.path() / "out", job_record()); });
  EXPECT_EQ(folder.listing(),
            "out/clips/000000.h5 out/clips/000001.h5 out/clips/000002.h5 out/job.h5");
  world.barrier();
  // Links are relative: they still work after the folder is moved.
  on_rank_0([&] { std::filesystem::rename(folder.path() / "out", folder.path() / "moved"); });
  EXPECT_EQ(run_on_rank_0(world, "/usr/bin/python3 " REELMESH_SOURCE "/tests/store/read_job.py " +
                                     (folder.path() / "moved/job.h5").string()),
            0);
}

TEST_F(JobFile, LinksClipsInFolders) {
  JobRecord r = job_record();
  r.clips.resize(10002);
  r.clips.back() = clip({ClipState::complete, {}}, "the last", 7);
  ClipRecord made;
  made.index = 10001;
  made.prompt = "the last";
  const Sharded video = filled(world, Layout::cut({3, 4, 6, 3}, 1, world.size()), DType::uint8);
  on_rank_0([&] { OutputFolder(folder.path(), Existing::fail).prepare(); });
  write_clip(world, folder.path(), made, {.video = video}, false);
  on_rank_0([&] { write_job(folder.path(), r); });
  const hdf5::File file = hdf5::open_for_reading(folder.path() / "job.h5");
  const hdf5::Group last(H5Gopen2(file.get(), "clips/010001", H5P_DEFAULT));
  ASSERT_TRUE(last);
  EXPECT_TRUE(hdf5::has_text(last.get(), "prompt", "the last"));
  const hdf5::Dataset videos = hdf5::open_dataset(file.get(), "videos/3x4x6/video");
  const std::int64_t index = 3;  // after the first three of these clips
  const std::string pixels =
      hdf5::read_box(videos.get(), H5T_NATIVE_UINT8, {{index, 0, 0, 0, 0}, {1, 3, 4, 6, 3}});
  EXPECT_EQ(static_cast<std::uint8_t>(pixels.at(5)), pixel_at(5));
}

TEST_F(JobFile, LinksAllFilesWhileTheJobRuns) {
  JobRecord r = job_record();
  r.status = "unfinished";
  on_rank_0([&] { write_job(folder.path(), r); });
  const hdf5::File file = hdf5::open_for_reading(folder.path() / "job.h5");
  for (const char* name : {"clips/000000", "clips/000002", "trace"}) {
    EXPECT_GT(H5Lexists(file.get(), name, H5P_DEFAULT), 0) << name;
  }
}

TEST_F(JobFile, HasVideosOfZerosWhereNoClipIsComplete) {
  JobRecord r = job_record();
  for (JobClip& c : r.clips) c.state = {ClipState::missing, {}};
  on_rank_0([&] { write_job(folder.path(), r); });
  const hdf5::File file = hdf5::open_for_reading(folder.path() / "job.h5");
  const hdf5::Dataset video = hdf5::open_dataset(file.get(), "videos/3x4x6/video");
  const std::string pixels =
      hdf5::read_box(video.get(), H5T_NATIVE_UINT8, {{0, 0, 0, 0, 0}, {3, 3, 4, 6, 3}});
  EXPECT_EQ(pixels, std::string(3 * 3 * 4 * 6 * 3, '\0'));
}

TEST_F(JobFile, HasNoTimesOfFramesWhereRatesDiffer) {
  JobRecord r = job_record();
  r.clips[1].fps = 16;
  on_rank_0([&] { write_job(folder.path(), r); });
  const hdf5::File file = hdf5::open_for_reading(folder.path() / "job.h5");
  EXPECT_GT(H5Lexists(file.get(), "videos/3x4x6/fps", H5P_DEFAULT), 0);
  EXPECT_EQ(H5Lexists(file.get(), "videos/3x4x6/time", H5P_DEFAULT), 0);
}

TEST_F(JobFile, SaysWhatIsNeededToRunTheJobAgain) {
  on_rank_0([&] { write_job(folder.path(), job_record()); });
  const SavedJob saved = read_job(folder.path() / "job.h5");
  EXPECT_EQ(saved.options, "model.path = models/tiny\nprompt.text = two lines\n");
  EXPECT_EQ(saved.requests,
            (std::vector<std::string>{R"({"prompt":"one"})", R"({"prompt":"zwei größe"})",
                                      R"({"prompt":"three"})"}));
  EXPECT_EQ(saved.working_folder, "/home/me");
  EXPECT_EQ(saved.weights_hash, "0123");
}

TEST_F(JobFile, ThatIsNotOneIsRefused) {
  const std::filesystem::path path = folder.path() / "job.h5";
  const auto expect = [&](Status status, const char* message) {
    world.barrier();
    test::expect_error(
        status, [&] { read_job(path); }, message);
    world.barrier();
  };
  const auto changed = [&](const std::function<void(JobRecord&)>& change) {
    JobRecord r = job_record();
    change(r);
    on_rank_0([&] { write_job(folder.path(), r); });
  };
  const auto edited = [&](const std::function<void(hid_t)>& edit) {
    on_rank_0([&] {
      write_job(folder.path(), job_record());
      const hdf5::File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
      edit(file.get());
    });
  };
  expect(Status::no_input, "not found");
  on_rank_0([&] { touch(path); });
  expect(Status::data, "cannot open");
  changed([](JobRecord& r) { r.program = "another"; });
  expect(Status::data, "of another program");
  changed([](JobRecord& r) { r.clips.clear(); });
  expect(Status::data, "no requests");
  edited([](hid_t file) {
    H5Adelete(file, "format_version");
    hdf5::write_attribute(file, "format_version", hdf5::format_version + 1);
  });
  expect(Status::data, "newer format");
  edited([](hid_t file) { H5Ldelete(file, "requests", H5P_DEFAULT); });
  expect(Status::data, "no /requests");
  edited([](hid_t file) {  // a link to the same array in another file is not followed
    H5Ldelete(file, "requests", H5P_DEFAULT);
    H5Lcreate_external("other.h5", "/requests", file, "requests", H5P_DEFAULT, H5P_DEFAULT);
  });
  expect(Status::data, "no /requests");
  edited([](hid_t file) {
    H5Adelete(file, "options");
    hdf5::write_attribute(file, "options", "sample.seed = 7\n");
  });
  expect(Status::data, "not those that were written");
  changed([](JobRecord&) {});
  if (world.rank() == 0) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) * 3 / 4);
  }
  expect(Status::data, "");
}

TEST_F(JobFile, IsWrittenAgainAndWithManyHosts) {
  JobRecord r = job_record();
  r.hosts.assign(5000, "a-host-with-a-name-of-some-length.example.org");
  on_rank_0([&] {
    write_job(folder.path(), job_record());
    write_job(folder.path(), r);
  });
  EXPECT_EQ(folder.listing(), "job.h5");
  const hdf5::File file = hdf5::open_for_reading(folder.path() / "job.h5");
  const hdf5::Attribute hosts(H5Aopen(file.get(), "hosts", H5P_DEFAULT));
  const hdf5::Dataspace space(H5Aget_space(hosts.get()));
  EXPECT_EQ(H5Sget_simple_extent_npoints(space.get()), 5000);
}

TEST_F(JobFile, HasNoVirtualDatasetOverVeryManyClips) {
  JobRecord many = job_record();
  many.status = "unfinished";  // all clips are linked
  for (const std::size_t count : {max_videos, max_videos + 1}) {
    many.clips.assign(count, clip({}, "one", 1));
    on_rank_0([&] {
      write_job(folder.path(), many);
      const hdf5::File file = hdf5::open_if_valid(folder.path() / "job.h5");
      EXPECT_EQ(H5Lexists(file.get(), "videos", H5P_DEFAULT) > 0, count == max_videos);
      EXPECT_GT(H5Lexists(file.get(), fmt::format("clips/{:06d}", count - 1).c_str(), H5P_DEFAULT),
                0);
    });
  }
}

TEST_F(JobFile, FailureLeavesTheOldFileAndNoTemporaryOne) {
  std::string message;
  EXPECT_EQ(status_of([&] { on_rank_0([&] { write_job(folder.path() / "no", job_record()); }); },
                      &message),
            Status::cannot_create);
  EXPECT_NE(message.find("No such file or directory"), std::string::npos) << message;

  on_rank_0([&] { write_job(folder.path(), job_record()); });
  const auto size = std::filesystem::file_size(folder.path() / "job.h5");
  world.barrier();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 500;
  setrlimit(RLIMIT_FSIZE, &small);
  const Status status =
      status_of([&] { on_rank_0([&] { write_job(folder.path(), job_record()); }); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status, Status::io);
  EXPECT_EQ(folder.listing(), "job.h5");
  EXPECT_EQ(std::filesystem::file_size(folder.path() / "job.h5"), size);
}

TEST_F(JobFile, TimesAreInUtc) {
  const std::string now = iso8601_now();
  ASSERT_EQ(now.size(), 20U) << now;
  EXPECT_EQ(now[10], 'T');
  EXPECT_EQ(now.back(), 'Z');
}

}  // namespace
}  // namespace reelmesh
