#include "store/output_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

#include "store/job.hpp"
#include "store_support.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

constexpr std::array every_choice{Existing::fail, Existing::resume, Existing::replace};

OutputFolder prepare(const fs::path& folder, Existing existing, Product product = Product::clips) {
  OutputFolder output(folder, existing, product);
  output.prepare();
  return output;
}

class Output : public FolderTest {
 protected:
  /// The folder as a job leaves it, with these files.
  void make_job(std::initializer_list<const char*> files) const {
    make_job_in(folder.path(), files);
  }
  static void make_job_in(const fs::path& where, std::initializer_list<const char*> files) {
    fs::create_directories(where);
    for (const char* name : files) touch(where / name);
    JobRecord record;
    record.program = "reelmesh";
    write_job(where, record);
  }
  /// Opening the folder fails with Error(cannot_create) and these texts, and changes nothing.
  template <class... Parts>
  void expect_refused(Existing existing, const Parts&... parts) const {
    const std::string before = folder.listing();
    test::expect_error(
        Status::cannot_create, [&] { OutputFolder(folder.path(), existing); },
        folder.path().string(), parts...);
    EXPECT_EQ(folder.listing(), before);
  }
  static std::string file_text(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(Output, IsMade) {
  on_rank_0([&] { prepare(folder.path() / "a/b", Existing::fail); });
  EXPECT_TRUE(fs::is_directory(folder.path() / "a/b/clips"));
  EXPECT_EQ(folder.listing(), "");
}

TEST_F(Output, OfATrainingHasNoClips) {
  on_rank_0([&] { prepare(folder.path() / "a", Existing::fail, Product::training); });
  EXPECT_TRUE(fs::is_directory(folder.path() / "a"));
  EXPECT_FALSE(fs::exists(folder.path() / "a/clips"));
}

TEST_F(Output, IsResumedByAJobWithTheSameProduct) {
  on_rank_0([&] {
    for (const char* file : {"metrics.h5", "restart/training.h5", "clips/000000.h5"}) {
      const bool clips = std::string_view(file).starts_with("clips");
      const Product own = clips ? Product::clips : Product::training;
      const Product other = clips ? Product::training : Product::clips;
      make_job({file, "trace.h5"});
      test::expect_error(
          Status::cannot_create,
          [&] { OutputFolder(folder.path(), Existing::resume, other).prepare(); },
          folder.path().string(), std::string("found ") + file,
          clips ? "expected one that trains" : "expected one that makes clips");
      prepare(folder.path(), Existing::resume, own);
      EXPECT_TRUE(fs::exists(folder.path() / file));
      prepare(folder.path(), Existing::replace, other);
      EXPECT_EQ(folder.listing(), "");
    }
  });
}

TEST_F(Output, ReplaceRemovesClipsThatATrainingMade) {
  on_rank_0([&] {
    for (const Product product : {Product::training, Product::clips}) {
      make_job({"metrics.h5", "samples/step-000000/job.h5", "samples/step-000000/clips/000000.h5",
                "samples/step-000100/restart/000001.h5", "samples/step-000100/clips/mine.h5",
                "samples/step-1/job.h5", "samples/mine"});
      prepare(folder.path(), Existing::resume, Product::training);
      EXPECT_TRUE(fs::exists(folder.path() / "samples/step-000000/clips/000000.h5"));
      prepare(folder.path(), Existing::replace, product);
      EXPECT_EQ(folder.listing(),
                "samples/mine samples/step-000100/clips/mine.h5 samples/step-1/job.h5");
      EXPECT_FALSE(fs::exists(folder.path() / "samples/step-000000"));
      fs::remove_all(folder.path() / "samples");
    }
  });
}

TEST_F(Output, IsUsedByOneJobAtATime) {
  on_rank_0([&] {
    OutputFolder first = prepare(folder.path(), Existing::fail);
    for (const Existing existing : every_choice) {
      expect_refused(existing,
                     "is in use by another job (process " + std::to_string(getpid()) + " on ");
    }
    const OutputFolder moved = std::move(first);
    expect_refused(Existing::resume, "in use");
  });
  EXPECT_EQ(folder.listing(), "");
}

TEST_F(Output, ThatExistsIsRefused) {
  on_rank_0([&] {
    make_job({"clips/000000.h5"});
    expect_refused(Existing::fail, "--output.if-exists");
  });
}

TEST_F(Output, WhatAJobLeavesThatEndsBeforeItsIndexIsNoContent) {
  on_rank_0([&] {
    for (const Existing existing : every_choice) {
      touch(folder.path() / ".lock", "process 1 on gone since 2026\n");
      touch(folder.path() / ".job.h5.partial");
      touch(folder.path() / "clips/.000000.h5.partial");
      touch(folder.path() / "clips/010/.010000.h5.partial");
      fs::create_directories(folder.path() / "trace");
      prepare(folder.path(), existing);
      EXPECT_EQ(folder.listing(), "");
    }
  });
}

TEST_F(Output, ReplaceRemovesWhatAJobWroteAndNothingElse) {
  on_rank_0([&] {
    make_job({"trace.h5",
              ".job.h5.partial",
              "clips/000000.h5",
              "clips/1000000.h5",
              "clips/.000001.h5.partial",
              "restart/000001.h5",
              "restart/.000001.h5.partial",
              "trace/000000.rank",
              "trace/000001.spans",
              "metrics.h5",
              "lora/pytorch_lora_weights.safetensors",
              "cache/0123456789abcdef0123456789abcdef.h5",
              "cache/full.h5",
              "status.json",
              "notes.txt",
              "clips/best.h5",
              "clips/000000.h5.bak",
              "clips/12.h5",
              "clips/.hidden",
              "job.h5.old",
              ".vimrc.partial",
              "restart/state.h5",
              "restart/deep/000000.h5",
              "trace/000000.csv",
              "trace/000000",
              "clips/000003.h5/a",
              "clips/012/012345.h5",
              "clips/012/.012346.h5.partial",
              "clips/013/013000.h5",
              "clips/013/000007.h5",
              "clips/013/notes.txt",
              "clips/000/000003.h5"});
    const OutputFolder output(folder.path(), Existing::replace);
    EXPECT_TRUE(fs::exists(folder.path() / "clips/000000.h5"));  // only locked so far
    EXPECT_TRUE(fs::exists(folder.path() / "status.json"));
    output.prepare();
  });
  EXPECT_EQ(folder.listing(),
            ".vimrc.partial cache/0123456789abcdef0123456789abcdef.h5 cache/full.h5 clips/.hidden "
            "clips/000/000003.h5 clips/000000.h5.bak "
            "clips/000003.h5/a clips/013/000007.h5 clips/013/notes.txt clips/12.h5 "
            "clips/best.h5 job.h5.old notes.txt restart/deep/000000.h5 restart/state.h5 "
            "trace/000000 trace/000000.csv");
}

TEST_F(Output, ResumeKeepsAllButWhatIsOfARunningJob) {
  on_rank_0([&] {
    make_job({"trace.h5", "status.json", "trace/000000.spans", "clips/000000.h5",
              "clips/.000001.h5.partial", "clips/012/012345.h5", "clips/012/.012346.h5.partial",
              "restart/000001.h5"});
    prepare(folder.path(), Existing::resume);
    EXPECT_EQ(count_clips(folder.path()), 2U);
  });
  EXPECT_EQ(folder.listing(),
            "clips/000000.h5 clips/012/012345.h5 job.h5 restart/000001.h5 trace.h5");
  EXPECT_FALSE(fs::exists(folder.path() / "trace"));
}

TEST_F(Output, ThatIsNotOfAJobIsRefused) {
  on_rank_0([&] {
    for (const char* name : {"notes.txt", "trace/000000.spans", "restart/000000.h5",
                             "clips/000000.h5", "clips/012/012345.h5", "trace/mine/a"}) {
      touch(folder.path() / name);
      for (const Existing existing : {Existing::resume, Existing::replace}) {
        expect_refused(existing, "not of a job", "no job.h5");
      }
      fs::remove_all(folder.path() / *fs::path(name).begin());
    }
    make_job({"clips/000000.h5"});
    fs::rename(folder.path() / "job.h5", folder.path() / "index.h5");
    fs::create_symlink("index.h5", folder.path() / "job.h5");
    expect_refused(Existing::replace, "job.h5 is damaged or not of reelmesh");
    fs::remove(folder.path() / "job.h5");
    touch(folder.path() / "job.h5", "text");
    expect_refused(Existing::resume, "job.h5 is damaged or not of reelmesh");
  });
}

TEST_F(Output, FoldersThatAreLinksAreRefused) {
  on_rank_0([&] {
    const fs::path elsewhere = folder.path() / "elsewhere";
    touch(elsewhere / "000000.h5");
    touch(elsewhere / "000000.spans");
    for (const char* name : {"clips", "restart", "trace", "clips/012"}) {
      make_job({});
      fs::create_directories((folder.path() / name).parent_path());
      fs::create_directory_symlink(elsewhere, folder.path() / name);
      for (const Existing existing : every_choice) {
        expect_refused(existing, fmt::format("the link {}", name));
      }
      fs::remove(folder.path() / name);
    }
  });
}

TEST_F(Output, LinksAreRemovedAndNotFollowed) {
  on_rank_0([&] {
    make_job({"mine", "clips/000000.h5"});
    for (const char* name : {".job.h5.partial", ".trace.h5.partial", "clips/.000000.h5.partial",
                             "clips/000001.h5", "status.json", "trace.h5"}) {
      fs::create_symlink(folder.path() / "mine", folder.path() / name);
    }
    prepare(folder.path(), Existing::replace);
    EXPECT_EQ(file_text(folder.path() / "mine"), "x");
  });
  EXPECT_EQ(folder.listing(), "mine");
}

TEST_F(Output, AForeignLockStaysAsItIs) {
  on_rank_0([&] {
    const fs::path lock = folder.path() / ".lock", mine = folder.path() / "mine";
    touch(mine, "");
    const std::vector<std::function<void()>> foreign{
        [&] { fs::create_symlink(mine, lock); }, [&] { fs::create_hard_link(mine, lock); },
        [&] { EXPECT_EQ(mkfifo(lock.c_str(), 0600), 0); }, [&] { touch(lock, "of yarn"); },
        [&] { fs::create_directory(lock); }};
    for (const auto& make : foreign) {
      make();
      expect_refused(Existing::replace, "/.lock: found");
      EXPECT_EQ(file_text(mine), "");
      fs::remove(lock);
    }
  });
}

TEST_F(Output, KnowsWhatItWrites) {
  on_rank_0([&] {
    const fs::path out = folder.path() / "out", at = folder.path();
    const OutputFolder output(out, Existing::fail);
    touch(out / "picture.png");
    touch(out / "clips/000000.h5");
    touch(out / "clips/012/012345.h5");
    fs::create_symlink("out/clips/012", at / "twelfth");
    touch(at / "film.h5");
    fs::create_symlink(out / "clips", at / "folder");
    fs::create_symlink("folder/000000.h5", at / "clip.h5");
    fs::create_symlink("clip.h5", at / "again.h5");
    fs::create_symlink(at / "film.h5", out / "clips/000001.h5");
    fs::create_symlink("out/clips/000001.h5", at / "archived.h5");
    touch(out / "samples/step-000002/clips/000000.h5");
    fs::create_symlink("out/samples/step-000002/clips", at / "sampled");
    for (const fs::path& own : {out, out / "clips", at / "folder", at / "sampled", out / "samples",
                                at / "twelfth", out / "samples/step-000002"}) {
      EXPECT_TRUE(output.is_own_folder(own)) << own;
      EXPECT_TRUE(output.is_written_folder(own)) << own;
    }
    fs::create_directory(out / "cache");
    EXPECT_TRUE(output.is_own_folder(out / "cache"));
    EXPECT_FALSE(output.is_own_folder(out / "cache", "cache"));
    EXPECT_FALSE(output.is_own_folder(at));
    EXPECT_TRUE(output.is_written_folder(at));  // by a link in it
    for (const fs::path& written :
         {out / "samples/step-000002/clips/000000.h5", at / "sampled/000007.h5",
          out / "clips/000000.h5", out / "clips/../clips/000000.h5", at / "folder/000000.h5",
          at / "again.h5", at / "archived.h5", out / "trace.h5", out / ".job.h5.partial",
          at / "twelfth/012345.h5"}) {
      EXPECT_TRUE(output.is_written(written)) << written;
    }
    for (const fs::path& kept :
         {out / "picture.png", at / "film.h5", at / "clips/000000.h5", out / "clips/first.h5",
          at / "twelfth/000000.h5", fs::path("000000.h5")}) {
      EXPECT_FALSE(output.is_written(kept)) << kept;
    }
  });
}

TEST_F(Output, OfClipsOfATrainingMustBeUsable) {
  on_rank_0([&] {
    const fs::path out = folder.path() / "out", clips = out / "samples/step-000004";
    const auto status = [&](Existing existing) {
      const OutputFolder output(out, existing, Product::training);
      return status_of([&] { output.require_usable_samples(); });
    };
    make_job_in(clips, {"clips/000000.h5"});
    make_job_in(out, {"metrics.h5"});
    EXPECT_EQ(status(Existing::resume), Status::ok);
    EXPECT_EQ(status(Existing::replace), Status::ok);
    {
      const OutputFolder other(clips, Existing::resume, Product::clips);  // of a job that runs
      EXPECT_EQ(status(Existing::resume), Status::cannot_create);
    }
    touch(clips / "mine");  // stays, so that the folder is not empty afterwards
    EXPECT_EQ(status(Existing::resume), Status::ok);
    EXPECT_EQ(status(Existing::replace), Status::cannot_create);
    fs::remove(clips / "job.h5");
    EXPECT_EQ(status(Existing::resume), Status::cannot_create);
    fs::rename(clips, folder.path() / "elsewhere");
    fs::create_symlink(folder.path() / "elsewhere", clips);
    EXPECT_EQ(status(Existing::replace), Status::cannot_create);
    fs::remove(clips);
    fs::create_directory(clips);
    fs::create_symlink(folder.path() / "elsewhere", clips / "clips");
    EXPECT_EQ(status(Existing::resume), Status::cannot_create);
  });
}

TEST_F(Output, FoldersInWhichNoFileCanBeMadeAreRefusedAtOnce) {
  struct Case {
    Product product;
    std::vector<const char*> files;
  };
  for (const auto& [product, files] :
       {Case{Product::clips, {"", "clips", "restart"}},
        Case{Product::training, {"", "lora", "transformer", "restart"}}}) {
    for (const char* name : files) {
      const fs::path where = folder.path() / "out" / name;
      on_rank_0([&] {
        make_job_in(folder.path() / "out", {});
        // No file can have the temporary name of any that a job writes.
        for (const char* file : {"job.h5", "metrics.h5", "000000.h5", "training.h5", "config.json",
                                 "pytorch_lora_weights.safetensors"}) {
          touch(where / fmt::format(".{}.partial", file) / "in/the/way");
        }
        test::expect_error(
            Status::cannot_create,
            [&] { prepare(folder.path() / "out", Existing::resume, product); }, where.string());
        fs::remove_all(folder.path() / "out");
      });
    }
  }
}

TEST_F(Output, ThatCannotBeMadeIsAnError) {
  on_rank_0([&] { touch(folder.path() / "file"); });
  for (const Existing existing : every_choice) {
    for (const char* name : {"file", "file/below"}) {
      std::string message;
      const auto open = [&] { OutputFolder(folder.path() / name, existing); };
      EXPECT_EQ(status_of([&] { on_rank_0(open); }, &message), Status::cannot_create);
      EXPECT_NE(message.find((folder.path() / name).string()), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace reelmesh
