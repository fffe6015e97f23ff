#include "store/job.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "comm/together.hpp"
#include "store/clip.hpp"
#include "store/file.hpp"
#include "store/hdf5.hpp"
#include "store_support.hpp"
#include "support/expect_error.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

class JobFile : public testing::Test {
 protected:
  JobFile() : folder(world) {}

  /// For prepare_output and write_job, which one rank calls. An Error is thrown on all ranks.
  void on_rank_0(const std::function<void()>& work) {
    comm::run_collectively(world, [&] {
      if (world.rank() == 0) work();
    });
  }
  static void touch(const std::filesystem::path& path) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  }

  comm::Group world = test::world();
  TestFolder folder;
};

JobRecord record() {
  JobRecord r;
  r.program = "reelmesh";
  r.version = "0.1.0";
  r.revision = "abc1234";
  r.options = {{"model.path", "models/tiny"}, {"sample.steps", "4"}};
  r.plan = "phased, 1 rank";
  r.hosts = {"node-1", "node-02"};
  r.start = "2026-01-31T12:00:00Z";
  r.end = "2026-01-31T12:34:56Z";
  r.status = "complete";
  r.clips = {{ClipState::complete, {}}, {ClipState::failed, "NaN in größe"}};
  r.trace = true;
  return r;
}

TEST_F(JobFile, LinksTheClipsAndIsReadByOtherPrograms) {
  on_rank_0([&] { prepare_output(folder.path() / "out", Existing::fail); });
  const Layout layout = Layout::cut({3, 4, 6, 3}, 1, world.size());
  const Sharded video = filled(world, layout, DType::uint8);
  for (int i = 0; i < 2; ++i) {
    ClipRecord clip;
    clip.index = i;
    write_clip(world, folder.path() / "out", clip, &video, nullptr, nullptr, nullptr, false);
  }
  on_rank_0([&] { write_job(folder.path() / "out", record()); });
  EXPECT_EQ(folder.listing(), "out/clips/000000.h5 out/clips/000001.h5 out/job.h5");
  world.barrier();
  // Links are relative: they still work after the folder is moved.
  on_rank_0([&] { std::filesystem::rename(folder.path() / "out", folder.path() / "moved"); });
  EXPECT_EQ(run_on_rank_0(world, "/usr/bin/python3 " REELMESH_SOURCE "/tests/store/read_job.py " +
                                     (folder.path() / "moved/job.h5").string()),
            0);
}

TEST_F(JobFile, IsWrittenAgainAndWithManyHosts) {
  JobRecord r = record();
  r.hosts.assign(5000, "a-host-with-a-name-of-some-length.example.org");
  on_rank_0([&] {
    write_job(folder.path(), record());
    write_job(folder.path(), r);
  });
  EXPECT_EQ(folder.listing(), "job.h5");
  const hdf5::File file = hdf5::open_for_reading(folder.path() / "job.h5");
  const hdf5::Attribute hosts(H5Aopen(file.get(), "hosts", H5P_DEFAULT));
  const hdf5::Dataspace space(H5Aget_space(hosts.get()));
  EXPECT_EQ(H5Sget_simple_extent_npoints(space.get()), 5000);
}

TEST_F(JobFile, FailureLeavesTheOldFileAndNoTemporaryOne) {
  std::string message;
  EXPECT_EQ(
      status_of([&] { on_rank_0([&] { write_job(folder.path() / "no", record()); }); }, &message),
      Status::cannot_create);
  EXPECT_NE(message.find("No such file or directory"), std::string::npos) << message;

  on_rank_0([&] { write_job(folder.path(), record()); });
  const auto size = std::filesystem::file_size(folder.path() / "job.h5");
  world.barrier();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 500;
  setrlimit(RLIMIT_FSIZE, &small);
  const Status status = status_of([&] { on_rank_0([&] { write_job(folder.path(), record()); }); });
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

TEST_F(JobFile, OutputFolderIsMade) {
  on_rank_0([&] { prepare_output(folder.path() / "a/b", Existing::fail); });
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() / "a/b/clips"));
  EXPECT_EQ(folder.listing(), "");
  world.barrier();
  // The folder as it is after a job that failed before its first clip.
  on_rank_0([&] { prepare_output(folder.path() / "a/b", Existing::fail); });
}

TEST_F(JobFile, OneJobAtATimeUsesTheFolder) {
  on_rank_0([&] {
    FolderLock first = prepare_output(folder.path() / "out", Existing::fail);
    for (const Existing existing : {Existing::fail, Existing::resume, Existing::replace}) {
      test::expect_error(
          Status::cannot_create, [&] { prepare_output(folder.path() / "out", existing); },
          "is in use by another job (process " + std::to_string(getpid()) + " on ");
    }
    const FolderLock moved = std::move(first);
    test::expect_error(
        Status::cannot_create, [&] { prepare_output(folder.path() / "out", Existing::resume); },
        "in use");
  });
  EXPECT_EQ(folder.listing(), "");
  world.barrier();
  on_rank_0([&] {
    // What a killed job leaves: the file without a lock.
    std::ofstream(folder.path() / "out/.lock") << "process 1 on gone since 2026\n";
    prepare_output(folder.path() / "out", Existing::fail);
  });
  EXPECT_EQ(folder.listing(), "");
}

TEST_F(JobFile, OutputThatExistsIsRefused) {
  on_rank_0([&] { touch(folder.path() / "clips/000000.h5"); });
  std::string message;
  EXPECT_EQ(status_of([&] { on_rank_0([&] { prepare_output(folder.path(), Existing::fail); }); },
                      &message),
            Status::cannot_create);
  EXPECT_NE(message.find("--output.if-exists"), std::string::npos) << message;
  EXPECT_NE(message.find(folder.path().string()), std::string::npos) << message;
  EXPECT_EQ(folder.listing(), "clips/000000.h5");
}

TEST_F(JobFile, ReplaceRemovesWhatAJobWroteAndNothingElse) {
  on_rank_0([&] {
    for (const char* name : {"job.h5", "trace.h5", ".job.h5.partial", "clips/000000.h5",
                             "clips/1000000.h5", "clips/.000001.h5.partial", "restart/state.h5",
                             "restart/deep/er", "notes.txt", "clips/best.h5", "clips/000000.h5.bak",
                             "clips/12.h5", "clips/.hidden", "job.h5.old", ".vimrc.partial"}) {
      touch(folder.path() / name);
    }
    prepare_output(folder.path(), Existing::replace);
  });
  EXPECT_EQ(folder.listing(),
            ".vimrc.partial clips/.hidden clips/000000.h5.bak clips/12.h5 clips/best.h5 "
            "job.h5.old notes.txt");
}

TEST_F(JobFile, ResumeKeepsAllButTemporaryFiles) {
  on_rank_0([&] {
    for (const char* name :
         {"job.h5", "clips/000000.h5", "clips/.000001.h5.partial", "restart/state.h5"}) {
      touch(folder.path() / name);
    }
    prepare_output(folder.path(), Existing::resume);
  });
  EXPECT_EQ(folder.listing(), "clips/000000.h5 job.h5 restart/state.h5");
}

TEST_F(JobFile, OutputThatCannotBeMadeIsAnError) {
  on_rank_0([&] { touch(folder.path() / "file"); });
  for (const Existing existing : {Existing::fail, Existing::resume, Existing::replace}) {
    for (const char* name : {"file", "file/below"}) {
      std::string message;
      const auto prepare = [&] { prepare_output(folder.path() / name, existing); };
      EXPECT_EQ(status_of([&] { on_rank_0(prepare); }, &message), Status::cannot_create);
      EXPECT_NE(message.find((folder.path() / name).string()), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace reelmesh
