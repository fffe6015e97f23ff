// The state of a training: read as written by other ranks in other boxes, refused if it is damaged
// or of another training.
#include "store/training_restart.hpp"

#include <cstring>
#include <fstream>

#include "store/hdf5.hpp"
#include "store_support.hpp"

namespace reelmesh {
namespace {

const Shape matrix{7, 5}, cube{3, 4, 6}, line{1, 9};
constexpr std::int64_t steps = 13;  // train.steps
const std::string fingerprint = "model 12ab, train.batch 2, lora.rank 7";

class TrainingRestart : public FolderTest {
 protected:
  /// The arrays over a group: cut by rows or columns, in boxes of a grid, and replicated.
  static std::vector<TrainingArray> written_by(const comm::Group& group) {
    const int ranks = group.size();
    return {{"a.weight", filled(group, Layout::cut(matrix, 0, ranks), DType::float32)},
            {"a.first", filled(group, Layout::cut(matrix, 1, ranks), DType::float32)},
            {"cube", filled(group, Layout::grid(cube, {1, 1, ranks}), DType::float32)},
            {"row", filled(group, Layout::replicated(line, ranks), DType::float32)}};
  }
  /// The same arrays in other layouts, zero.
  static std::vector<TrainingArray> read_by(const comm::Group& group) {
    const int ranks = group.size();
    std::vector<TrainingArray> arrays;
    const auto add = [&](const char* name, const Layout& layout) {
      arrays.push_back(
          {name, {Tensor::zeros(own_box(layout, group).extent, DType::float32), layout, group}});
    };
    add("a.weight", Layout::replicated(matrix, ranks));
    add("a.first", Layout::on_one_rank(matrix, ranks, ranks - 1));
    add("cube", Layout::cut(cube, 1, ranks).grown(1, 1));
    add("row", Layout::cut(line, 1, ranks));
    return arrays;
  }
  static void expect_values(const std::vector<TrainingArray>& arrays) {
    for (const TrainingArray& array : arrays) {
      const Sharded expected = filled(array.values.group, array.values.layout, DType::float32);
      ASSERT_EQ(array.values.local.bytes(), expected.local.bytes());
      if (expected.local.empty()) continue;  // memcmp takes no null pointers
      EXPECT_EQ(std::memcmp(array.values.local.raw(), expected.local.raw(),
                            static_cast<std::size_t>(expected.local.bytes())),
                0)
          << array.name;
    }
  }
  void write(std::int64_t step) {
    write_training_restart(world, folder.path(), step, fingerprint, written_by(world));
  }
  /// Status of reading on all ranks, with the message.
  std::pair<Status, std::string> refusal(const std::string& text,
                                         const std::vector<TrainingArray>& arrays) {
    std::string message;
    const Status status = status_of(
        [&] { (void)read_training_restart(world, folder.path(), text, steps, arrays); }, &message);
    world.barrier();
    return {status, message};
  }
  void expect_refusal(const std::vector<TrainingArray>& arrays, const std::string& expected,
                      const std::string& text = fingerprint) {
    const auto [status, message] = refusal(text, arrays);
    EXPECT_EQ(status, Status::data);
    EXPECT_EQ(message, training_restart_path(folder.path()).string() + ": " + expected);
  }
};

TEST_F(TrainingRestart, IsReadInOtherBoxes) {
  const auto arrays = read_by(world);
  EXPECT_EQ(read_training_restart(world, folder.path(), fingerprint, steps, arrays), std::nullopt);
  world.barrier();
  write(12);
  EXPECT_EQ(folder.listing(), "restart/training.h5");
  EXPECT_EQ(read_training_restart(world, folder.path(), fingerprint, steps, arrays), 12);
  expect_values(arrays);
  world.barrier();
  write(13);
  EXPECT_EQ(read_training_restart(world, folder.path(), fingerprint, steps, read_by(world)), 13);
  EXPECT_EQ(folder.listing(), "restart/training.h5");
}

TEST_F(TrainingRestart, IsReadByOtherRanks) {
  write(4);
  const comm::Group alone = world.split(world.rank());
  const auto arrays = read_by(alone);
  EXPECT_EQ(read_training_restart(alone, folder.path(), fingerprint, steps, arrays), 4);
  expect_values(arrays);
  world.barrier();
  // Written by one rank, and read by all.
  if (world.rank() == 0) {
    write_training_restart(alone, folder.path(), 5, fingerprint, written_by(alone));
  }
  world.barrier();
  const auto all = read_by(world);
  EXPECT_EQ(read_training_restart(world, folder.path(), fingerprint, steps, all), 5);
  expect_values(all);
}

TEST_F(TrainingRestart, RefusesAnotherTraining) {
  write(12);
  auto arrays = read_by(world);
  expect_refusal(arrays,
                 "is of another training: found train.batch 2, expected train.steps 9, train.batch "
                 "3",
                 "model 12ab, train.steps 9, train.batch 3, lora.rank 7");
  expect_refusal(arrays, "is of another training: found lora.rank 7, expected none",
                 "model 12ab, train.batch 2");
  arrays.back().name = "line";
  expect_refusal(arrays, "found no float32 array line, expected one of [1, 9]");
  arrays.pop_back();
  expect_refusal(arrays, "found 4 arrays, expected 3");
  const Shape other{7, 6};
  const Layout whole = Layout::replicated(other, world.size());
  arrays.push_back({"row", {Tensor::zeros(other, DType::float32), whole, world}});
  expect_refusal(arrays, "array row has shape [1, 9], expected [7, 6]");
}

// Forged, with the checksum of its attributes, or of a longer training.
TEST_F(TrainingRestart, RefusesAStepThatCannotBe) {
  for (const std::int64_t step : {steps + 1, std::int64_t{1} << 62}) {
    write(step);
    const std::string found = fmt::format("found step {}, expected 0 to train.steps = 13", step);
    EXPECT_THAT(refusal(fingerprint, read_by(world)).second, testing::EndsWith(found));
    std::string message;
    EXPECT_EQ(status_of([&] { require_training_of(folder.path(), fingerprint, steps); }, &message),
              Status::data);
    EXPECT_THAT(message, testing::EndsWith(found));
    world.barrier();
  }
  write(-1);
  expect_refusal(read_by(world),  // HDF5 reads it as 0
                 "is damaged: found another checksum of its attributes than was written");
}

TEST_F(TrainingRestart, RefusesOtherFiles) {
  const std::filesystem::path path = training_restart_path(folder.path());
  const auto arrays = read_by(world);
  on_rank_0([&] { touch(path, "text"); });
  expect_refusal(arrays, "is damaged: HDF5 cannot open it");
  on_rank_0([&] { hdf5::write_file(path, [](hid_t file) { hdf5::write_title(file, "other"); }); });
  expect_refusal(arrays, "found no state of a training, expected the restart file of one");
  on_rank_0([&] {
    hdf5::write_file(path, [](hid_t file) {
      hdf5::write_title(file, "newer");
      hdf5::write_attribute(file, "restart_version", training_restart_version + 1);
    });
  });
  expect_refusal(arrays, fmt::format("found restart_version {}, expected {}",
                                     training_restart_version + 1, training_restart_version));
}

// A changed byte anywhere leaves the content as it was, or makes the file unusable.
TEST_F(TrainingRestart, RefusesDamage) {
  write(7);
  const std::filesystem::path path = training_restart_path(folder.path());
  const comm::Group alone = world.split(world.rank());
  on_rank_0([&] {
    std::string bytes;
    {
      std::ifstream in(path, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    int refused = 0;
    const auto arrays_are_read = [&](const std::string& content) {
      std::ofstream(path, std::ios::binary) << content;
      const auto arrays = read_by(alone);
      std::optional<std::int64_t> step;
      const Status status = status_of(
          [&] { step = read_training_restart(alone, folder.path(), fingerprint, steps, arrays); });
      if (status != Status::ok) {
        EXPECT_TRUE(status == Status::data || status == Status::io);
        ++refused;
        return;
      }
      EXPECT_EQ(step, 7);
      expect_values(arrays);
    };
    for (std::size_t i = 0; i < bytes.size(); i += 41) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      arrays_are_read(damaged);
    }
    EXPECT_GT(refused, 20);
    for (const std::size_t length : {std::size_t{0}, std::size_t{100}, bytes.size() / 2}) {
      const int before = refused;
      arrays_are_read(bytes.substr(0, length));
      EXPECT_GT(refused, before) << length;
    }
  });
}

}  // namespace
}  // namespace reelmesh
