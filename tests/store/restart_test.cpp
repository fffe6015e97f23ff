// Restart files: read as written on any number of ranks, refused if they are damaged or of another
// clip.
#include "store/restart.hpp"

#include <array>
#include <cstring>
#include <fstream>
#include <variant>

#include "store/hdf5.hpp"
#include "store_support.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

const Shape latents{5, 4, 6, 7};
const Shape embeddings{9, 2, 8};
const std::string inputs = "video [5, 6, 7], texts [1 2 3]";

ClipRecord clip() {
  ClipRecord r;
  r.index = 2;
  r.prompt = "a fox";
  r.settings.seed = 11;
  r.settings.steps = 20;
  r.settings.guidance = 6;
  r.settings.fps = 8;
  r.scheduler = "dpm";
  r.dtype = "bfloat16";
  r.fingerprint = "model 1, backend cpu";
  return r;
}

class Restart : public testing::Test {
 protected:
  Restart() : folder(world) {}

  void write(std::int64_t step) {
    const Layout rows = Layout::cut(latents, 2, world.size());
    write_restart(world, folder.path(), {clip(), inputs, step, "state of a generator", 1},
                  {{"latents", filled(world, rows, DType::float32)},
                   {"history0", filled(world, rows, DType::float32)},
                   {"embeddings",
                    filled(world, Layout::replicated(embeddings, world.size()), DType::float32)}});
  }
  std::optional<RestartFile> open(const ClipRecord& record, const std::string& of = inputs,
                                  const Shape& shape = latents) const {
    return RestartFile::open(folder.path(), record, of, {shape, embeddings, {}});
  }

  const comm::Group& world = test::world();
  TestFolder folder;
};

TEST_F(Restart, ReadsWhatWasWritten) {
  write(7);
  EXPECT_EQ(folder.listing(), "restart/000002.h5");
  const auto file = open(clip());
  ASSERT_TRUE(file);
  EXPECT_EQ(file->record().step, 7);
  EXPECT_EQ(file->record().history, 1);
  EXPECT_EQ(file->record().generator, "state of a generator");
  const Box box{{1, 0, 2, 3}, {2, 4, 3, 4}};
  for (const char* name : {"latents", "history0"}) {
    const Tensor part = file->read(name, box);
    ASSERT_EQ(part.shape(), box.extent);
    std::int64_t i = 0;
    for (std::int64_t f = 1; f < 3; ++f) {
      for (std::int64_t c = 0; c < 4; ++c) {
        for (std::int64_t r = 2; r < 5; ++r) {
          for (std::int64_t x = 3; x < 7; ++x, ++i) {
            ASSERT_EQ(part.data<float>()[i], value_at(((f * 4 + c) * 6 + r) * 7 + x)) << name;
          }
        }
      }
    }
  }
  EXPECT_EQ(file->read("embeddings", whole_box(embeddings)).data<float>()[17], value_at(17));
  EXPECT_TRUE(file->read("latents", {{0, 0, 0, 0}, {0, 4, 6, 7}}).empty());
}

TEST_F(Restart, ALaterStepReplacesTheFile) {
  write(3);
  write(4);
  EXPECT_EQ(folder.listing(), "restart/000002.h5");
  EXPECT_EQ(open(clip())->record().step, 4);
  world.barrier();
  if (world.rank() == 0) remove_restart(folder.path(), 2);
  world.barrier();
  EXPECT_FALSE(open(clip()));
}

TEST_F(Restart, RefusesAnotherClip) {
  write(7);
  EXPECT_TRUE(open(clip()));
  const auto other = [&](auto&& change) {
    ClipRecord record = clip();
    change(record);
    return open(record).has_value();
  };
  EXPECT_FALSE(other([](ClipRecord& r) { r.prompt += "x"; }));
  EXPECT_FALSE(other([](ClipRecord& r) { r.settings.seed = 12; }));
  EXPECT_FALSE(other([](ClipRecord& r) { r.settings.steps = 21; }));
  EXPECT_FALSE(other([](ClipRecord& r) { r.settings.guidance = 6.5; }));
  EXPECT_FALSE(other([](ClipRecord& r) { r.scheduler = "ddim"; }));
  EXPECT_FALSE(other([](ClipRecord& r) { r.dtype = "float32"; }));
  EXPECT_FALSE(other([](ClipRecord& r) { r.fingerprint = "model 2, backend cpu"; }));
  EXPECT_TRUE(other([](ClipRecord& r) { r.layout = "another"; }));
  EXPECT_FALSE(open(clip(), "video [5, 6, 7], texts [1 2 4]"));
  EXPECT_FALSE(open(clip(), inputs, {5, 4, 7, 6}));
}

// Clips that decide which of their steps are computed.
TEST_F(Restart, KeepsWhatDecidesOfTheNextStep) {
  const Layout rows = Layout::cut(latents, 2, world.size());
  const Sharded values = filled(world, rows, DType::float32);
  const double sum = 0.1 + 0.2;  // has no short decimal form
  write_restart(world, folder.path(), {clip(), inputs, 7, "state of a generator", 0, sum},
                {{"latents", values},
                 {latents_before_name, values},
                 {"embeddings",
                  filled(world, Layout::replicated(embeddings, world.size()), DType::float32)}});
  const RestartShapes shapes{
      .latents = latents, .embeddings = embeddings, .latents_before = latents};
  const auto open = [&] { return RestartFile::open(folder.path(), clip(), inputs, shapes); };
  EXPECT_EQ(open().value().record().cache_sum, sum);
  world.barrier();
  if (world.rank() == 0) {
    for (const char* text : {"0.31", "nan?", ""}) {
      {
        const hdf5::File changed(
            H5Fopen(restart_path(folder.path(), 2).c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
        EXPECT_EQ(H5Adelete(changed.get(), "cache_sum"), 0);
        hdf5::write_attribute(changed.get(), "cache_sum", text);
      }
      EXPECT_FALSE(open()) << text;
    }
  }
  world.barrier();
}

// Every value has a checksum, and so has the metadata: a changed byte anywhere in the file either
// leaves the content as it was or makes the file unusable.
TEST_F(Restart, RefusesDamage) {
  write(7);
  const std::filesystem::path path = restart_path(folder.path(), 2);
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  world.barrier();
  const Tensor expected = open(clip())->read("latents", whole_box(latents));
  world.barrier();
  if (world.rank() == 0) {
    int refused = 0;
    for (std::size_t i = 0; i < bytes.size(); i += 23) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      std::ofstream(path, std::ios::binary) << damaged;
      const auto file = open(clip());
      if (!file) {
        ++refused;
        continue;
      }
      const Tensor found = file->read("latents", whole_box(latents));
      EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), std::size_t(expected.bytes())), 0) << i;
      EXPECT_EQ(file->record().step, 7) << i;
      EXPECT_EQ(file->record().generator, "state of a generator") << i;
    }
    EXPECT_GT(refused, 20);
    for (const std::size_t length : {std::size_t{0}, std::size_t{100}, bytes.size() / 2}) {
      std::ofstream(path, std::ios::binary) << bytes.substr(0, length);
      EXPECT_FALSE(open(clip())) << length;
    }
  }
  world.barrier();
}

// HDF5 itself would read beyond a chunk that is too short.
TEST_F(Restart, RefusesChunksOfAnotherSize) {
  write(7);
  const std::filesystem::path path = restart_path(folder.path(), 2);
  EXPECT_TRUE(open(clip()));
  world.barrier();
  if (world.rank() == 0) {
    constexpr std::size_t raw = std::size_t{4} * 6 * 7 * sizeof(float);
    constexpr std::uint32_t checksum = 0b1;
    for (const auto& [left_out, size] :
         std::vector<std::pair<std::uint32_t, std::size_t>>{{0, 1},
                                                            {0, 3},
                                                            {0, 4},
                                                            {0, raw},
                                                            {0, raw + 5},
                                                            {checksum, 3},
                                                            {checksum, raw - 1},
                                                            {checksum, raw},
                                                            {checksum, raw + 4}}) {
      const hdf5::File changed(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
      const hdf5::Dataset dataset = hdf5::open_dataset(changed.get(), "latents");
      const std::array<hsize_t, 4> first{};
      const std::string bytes(size, 'x');
      ASSERT_GE(
          H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, left_out, first.data(), size, bytes.data()),
          0);
      ASSERT_GE(H5Fflush(changed.get(), H5F_SCOPE_LOCAL), 0);
      EXPECT_FALSE(open(clip())) << size << " bytes, filters left out: " << left_out;
    }
  }
  world.barrier();
}

// HDF5 has no checksums of attributes. A changed one may be valid: another step would continue with
// the wrong noise level, and the fingerprint may be that of the job that resumes.
TEST_F(Restart, RefusesChangedAttributes) {
  struct Change {
    const char* name;
    std::variant<std::int64_t, std::string> value;
    ClipRecord record = clip();  // of the job that resumes
    std::string of = inputs;
  };
  std::vector<Change> changes{{"step", 8}, {"history", 0}, {"generator", "another state"}};
  changes.push_back({"seed", 12});
  changes.back().record.settings.seed = 12;
  changes.push_back({"fingerprint", "model 2, backend cpu"});
  changes.back().record.fingerprint = "model 2, backend cpu";
  changes.push_back({"inputs", "texts [1 2 4]", clip(), "texts [1 2 4]"});
  changes.push_back({"restart_version", 1});
  for (const Change& change : changes) {
    write(7);
    if (world.rank() == 0) {
      {
        const hdf5::File file(
            H5Fopen(restart_path(folder.path(), 2).c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
        ASSERT_EQ(H5Adelete(file.get(), change.name), 0);
        std::visit([&](const auto& to) { hdf5::write_attribute(file.get(), change.name, to); },
                   change.value);
      }
      EXPECT_FALSE(open(change.record, change.of)) << change.name;
      EXPECT_EQ(RestartFile::has_other_version(folder.path(), 2),
                std::string_view(change.name) == "restart_version");
    }
    world.barrier();
  }
}

}  // namespace
}  // namespace reelmesh
