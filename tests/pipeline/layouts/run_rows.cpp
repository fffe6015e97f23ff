#include "pipeline/layouts/run_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>

#include "base/log.hpp"
#include "options.hpp"
#include "pipeline/run.hpp"
#include "store/clip.hpp"
#include "store/hdf5.hpp"
#include "support/groups.hpp"

namespace reelmesh::test {
namespace {

// Runs one job on a group. An exception ends the whole launch, as other ranks of the group may be
// waiting for this one.
void run_job(const comm::Group& group, const std::string& words) {
  std::istringstream in(words);
  std::vector<std::string> all{"run"};
  for (std::string word; in >> word;) all.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : all) argv.push_back(word.c_str());
  try {
    const Job job = app::parse_run(static_cast<int>(argv.size()), argv.data());
    pipeline::run(group, job, {"reelmesh", "0", "none"}, nullptr);
  } catch (const std::exception& error) {
    std::cerr << "rank " << group.rank() << " of " << group.size() << ": " << error.what() << "\n  "
              << words << std::endl;
    comm::abort_all(Status::internal);
  }
}

struct ClipFile {
  std::map<std::string, std::string> arrays;  // dataset → its shape and bytes
  std::string layout;
};

ClipFile read_clip_file(const std::filesystem::path& path) {
  const hdf5::File file = hdf5::open_for_reading(path);
  ClipFile clip;
  for (const char* name :
       {"video", "latents", "token_ids", "prompt_embeds", "negative_prompt_embeds"}) {
    if (H5Lexists(file.get(), name, H5P_DEFAULT) <= 0) continue;
    const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), name);
    const hdf5::Datatype type(H5Dget_type(dataset.get()));
    const hdf5::Dataspace space(H5Dget_space(dataset.get()));
    std::vector<hsize_t> extents(std::size_t(H5Sget_simple_extent_ndims(space.get())));
    H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
    const Shape shape(extents.begin(), extents.end());
    clip.arrays[name] =
        to_string(shape) + hdf5::read_box(dataset.get(), type.get(), whole_box(shape));
  }
  clip.layout = hdf5::read_text(file.get(), "layout", 1 << 20).value_or("");
  return clip;
}

std::vector<ClipFile> read_clips(const std::filesystem::path& output) {
  std::vector<ClipFile> clips;
  for (int i = 0; std::filesystem::exists(clip_path(output, i)); ++i) {
    clips.push_back(read_clip_file(clip_path(output, i)));
  }
  return clips;
}

// A job of the group's first ranks leaves clips in a folder; another one completes them. words: of
// the first job.
void run_in_two(const comm::Group& group, const std::string& words, const LayoutRow& row,
                const std::filesystem::path& left, const std::string& of_second) {
  const comm::Group first = group.split(group.rank() < row.left_by ? 0 : -1);
  if (first.member()) {
    run_job(first, fmt::format("{} {} --output.path {}", words, row.left_with, left.string()));
  }
  group.barrier();
  std::string clips = "0";
  for (int i = 1; std::filesystem::exists(clip_path(left, i)); ++i) clips = fmt::format("0-{}", i);
  run_job(group,
          fmt::format("--from {} --clips {} {}", (left / "job.h5").string(), clips, of_second));
}

void compare(const std::vector<ClipFile>& clips, const std::vector<ClipFile>& expected,
             const LayoutRow& row) {
  ASSERT_EQ(clips.size(), expected.size());
  for (std::size_t i = 0; i < clips.size(); ++i) {
    for (const auto& [name, bytes] : expected[i].arrays) {
      ASSERT_EQ(clips[i].arrays.count(name), 1U) << name;
      EXPECT_TRUE(clips[i].arrays.at(name) == bytes) << name << " of clip " << i << " differs";
    }
    EXPECT_EQ(clips[i].arrays.size(), expected[i].arrays.size());
  }
  const std::string& layout = clips.front().layout;
  const std::string ranks = fmt::format("{} rank{}; ", row.ranks, row.ranks == 1 ? "" : "s");
  EXPECT_NE(layout.find(ranks), std::string::npos) << layout;
  EXPECT_NE(layout.find(row.expected_text), std::string::npos) << row.expected_text << " in\n"
                                                               << layout;
}

}  // namespace

void expect_same_clips(const comm::Group& launch, const std::filesystem::path& folder,
                       const std::string& job, const std::vector<LayoutRow>& rows) {
  const auto output = [&](std::size_t row) { return folder / fmt::format("row_{}", row); };
  const auto left = [&](std::size_t row) { return folder / fmt::format("left_{}", row); };
  std::vector<int> sizes;
  for (const LayoutRow& row : rows) sizes.push_back(row.ranks);
  for (const auto& round : pack_groups_into_rounds(sizes, launch.size())) {
    std::size_t mine = rows.size();  // this rank's row; rows.size(): none in this round
    int first = 0;
    for (const std::size_t row : round) {
      if (launch.rank() >= first && launch.rank() < first + rows[row].ranks) mine = row;
      first += rows[row].ranks;
    }
    const comm::Group group = launch.split(mine < rows.size() ? static_cast<int>(mine) : -1);
    if (group.member()) {
      std::string own = " " + rows[mine].options + " --output.path " + output(mine).string();
      if (own.find("--parallel.replicas") == own.npos) own += " --parallel.replicas 1";
      if (rows[mine].left_by > 0) {
        run_in_two(group, job, rows[mine], left(mine), own);
      } else {
        run_job(group, job + own);
      }
    }
    wait_asleep(launch);
  }
  const std::vector<ClipFile> expected = read_clips(output(0));
  ASSERT_FALSE(expected.empty());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (static_cast<int>(row) % launch.size() != launch.rank()) continue;
    SCOPED_TRACE(fmt::format("{} ranks {}", rows[row].ranks, rows[row].options));
    compare(read_clips(output(row)), expected, rows[row]);
    if (rows[row].left_by > 0) {
      const auto first = std::ranges::find_if(
          rows, [](int ranks) { return ranks > 0; }, &LayoutRow::left_by);
      compare(read_clips(left(row)), read_clips(left(std::size_t(first - rows.begin()))),
              {.ranks = rows[row].left_by, .options = {}, .expected_text = {}});
    }
  }
  wait_asleep(launch);
}

SharedFolder::SharedFolder(const comm::Group& launch) : launch_(launch) {
  std::string name = (std::filesystem::temp_directory_path() / "reelmesh_XXXXXX").string();
  if (launch.rank() == 0 && mkdtemp(name.data()) == nullptr) comm::abort_all(Status::cannot_create);
  path_ = launch.broadcast(name, 0);
}

SharedFolder::~SharedFolder() {
  wait_asleep(launch_);
  std::error_code ignored;
  if (launch_.rank() == 0) std::filesystem::remove_all(path_, ignored);
}

}  // namespace reelmesh::test
