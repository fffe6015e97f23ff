#include "store/clip.hpp"

#include <sys/resource.h>

#include <array>
#include <csignal>
#include <fstream>

#include "base/hash.hpp"
#include "fuzz/corpus_clip.hpp"
#include "store/hdf5.hpp"
#include "store/pieces.hpp"
#include "store/saved_video.hpp"
#include "store_support.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

const Shape video_shape{5, 18, 26, 3};
const Shape latent_shape{2, 4, 9, 13};
const Shape embed_shape{11, 6};

ClipRecord record() {
  ClipRecord r;
  r.index = 3;
  r.prompt = "a panda — «竹» in the wind";
  r.settings.seed = 18446744073709551615ULL;
  r.settings.steps = 50;
  r.settings.guidance = 6.5;
  r.settings.fps = 8;
  r.model = "models/tiny";
  r.scheduler = "ddim";
  r.dtype = "float32";
  r.fingerprint = "model 0123456789abcdef, backend cpu";
  r.layout = "height";
  r.wall_seconds = 1.25;
  r.token_ids = {5, 0, -1, 32000, 1, 2, 3, 4, 5, 6, 7};
  return r;
}

ClipRecord record_of_video() {
  ClipRecord r = record();
  r.video = "films/cat.mp4";
  r.input_hash = "0123456789abcdef0123456789abcdef";
  r.last_image_hash = "456789abcdef0123456789abcdef0123";
  r.input_frames = 5;
  r.settings.strength = 0.75;
  return r;
}

ClipShapes shapes() { return {video_shape, latent_shape, embed_shape, embed_shape}; }

class Clip : public testing::Test {
 protected:
  Clip() : folder(world) {
    if (world.rank() == 0) std::filesystem::create_directories(folder.path() / "clips");
    world.barrier();
  }

  /// An axis cut unevenly over the ranks; empty on rank 1 of three or more.
  Layout rows(const Shape& global, std::size_t axis) const {
    const std::int64_t n = global[axis];
    switch (world.size()) {
      case 1:
        return cut_at(global, axis, {0, n});
      case 2:
        return cut_at(global, axis, {0, n - 1, n});
      case 3:
        return cut_at(global, axis, {0, 2, 2, n});
      default: {
        std::vector<std::int64_t> cuts{0, 2, 2, n - 1};
        cuts.resize(static_cast<std::size_t>(world.size()) + 1, n);
        return cut_at(global, axis, cuts);
      }
    }
  }

  void write(const Layout& video, const Layout& latents, const Layout& embeds,
             bool replace = false) {
    const Sharded v = filled(world, video, DType::uint8);
    const Sharded l = filled(world, latents, DType::float32);
    const Sharded e = filled(world, embeds, DType::float32);
    write_clip(world, folder.path(), record(), {v, l, e, e}, replace);
  }
  void write(bool replace = false) {
    write(rows(video_shape, 1), rows(latent_shape, 2),
          Layout::replicated(embed_shape, world.size()), replace);
  }

  std::filesystem::path file() const { return clip_path(folder.path(), 3); }

  comm::Group world = test::world();
  TestFolder folder;
};

template <class T, class Rule>
void expect_values(hid_t file, const char* name, hid_t type, const Shape& shape, Rule rule) {
  const hdf5::Dataset dataset = hdf5::open_dataset(file, name);
  const std::string bytes = hdf5::read_box(dataset.get(), type, whole_box(shape));
  ASSERT_EQ(bytes.size(), static_cast<std::size_t>(numel(shape)) * sizeof(T));
  const T* values = reinterpret_cast<const T*>(bytes.data());
  for (std::int64_t i = 0; i < numel(shape); ++i) {
    ASSERT_EQ(values[i], rule(i)) << name << " at " << i;
  }
}

void expect_content(const std::filesystem::path& path) {
  const hdf5::File file = hdf5::open_for_reading(path);
  expect_values<std::uint8_t>(file.get(), "video", H5T_NATIVE_UINT8, video_shape, pixel_at);
  expect_values<float>(file.get(), "latents", H5T_NATIVE_FLOAT, latent_shape, value_at);
  expect_values<float>(file.get(), "prompt_embeds", H5T_NATIVE_FLOAT, embed_shape, value_at);
  expect_values<float>(file.get(), "negative_prompt_embeds", H5T_NATIVE_FLOAT, embed_shape,
                       value_at);
  const auto id_at = [](std::int64_t i) { return record().token_ids[static_cast<std::size_t>(i)]; };
  expect_values<std::int32_t>(file.get(), "token_ids", H5T_NATIVE_INT32, {11}, id_at);
}

TEST_F(Clip, HoldsWhatTheRanksHeldInUnevenAndEmptyRows) {
  write();
  EXPECT_EQ(folder.listing(), "clips/000003.h5");
  expect_content(file());
  EXPECT_TRUE(clip_complete(file(), record(), shapes()));
}

TEST_F(Clip, IsNoCompleteOneAsAPreview) {
  write();
  EXPECT_FALSE(is_preview(file(), record(), shapes()));
  const Sharded video = filled(world, rows(video_shape, 1), DType::uint8);
  const ClipShapes shapes{video_shape, {}, {}, {}};
  write_clip(world, folder.path(), record(), {.video = video}, true, 5);
  EXPECT_FALSE(clip_complete(file(), record(), shapes));
  EXPECT_TRUE(is_preview(file(), record(), shapes));
  ClipRecord other = record();
  other.settings.steps = 49;
  EXPECT_FALSE(is_preview(file(), other, shapes));
  const hdf5::File h5 = hdf5::open_for_reading(file());
  EXPECT_EQ(hdf5::read_unsigned(h5.get(), "stopped_after"), 5U);
}

TEST_F(Clip, TakesBoxesOfSeveralAxesAndArraysOfOneRank) {
  std::vector<int> parts{1, world.size(), 1, 1};
  if (world.size() == 4) parts = {1, 2, 2, 1};
  const int last = world.size() - 1;
  write(Layout::grid(video_shape, parts), Layout::on_one_rank(latent_shape, world.size(), last),
        Layout::cut(embed_shape, 0, world.size()));
  expect_content(file());
}

TEST_F(Clip, TakesMoreRanksThanFrames) {
  const Shape one_frame{1, 18, 26, 3};
  const Sharded v = filled(world, rows(one_frame, 1), DType::uint8);
  ClipRecord r = record();
  r.token_ids.clear();
  write_clip(world, folder.path(), r, {.video = v}, false);
  const hdf5::File h5 = hdf5::open_for_reading(file());
  expect_values<std::uint8_t>(h5.get(), "video", H5T_NATIVE_UINT8, one_frame, pixel_at);
  EXPECT_EQ(H5Lexists(h5.get(), "latents", H5P_DEFAULT), 0);
  EXPECT_EQ(H5Lexists(h5.get(), "token_ids", H5P_DEFAULT), 0);
  EXPECT_TRUE(clip_complete(file(), r, {one_frame, {}, {}, {}}));
  EXPECT_FALSE(clip_complete(file(), r, {one_frame, latent_shape, {}, {}}));
}

TEST_F(Clip, IsReadWithNamesByOtherPrograms) {
  write();
  EXPECT_EQ(run_on_rank_0(world, "/usr/bin/python3 " REELMESH_SOURCE "/tests/store/read_clip.py " +
                                     file().string()),
            0);
}

TEST_F(Clip, IsInAFolderIfTheJobHasVeryMany) {
  EXPECT_EQ(clip_path("out", 9999), "out/clips/009999.h5");
  EXPECT_EQ(clip_path("out", 10000), "out/clips/010/010000.h5");
  EXPECT_EQ(clip_path("out", 999999), "out/clips/999/999999.h5");
  EXPECT_EQ(named_clip_file("out/job.h5:12345"), "out/clips/012/012345.h5");
  const Sharded video = filled(world, rows(video_shape, 1), DType::uint8);
  ClipRecord many = record();
  for (const int index : {12345, 12346}) {
    many.index = index;
    write_clip(world, folder.path(), many, {.video = video}, false);
    EXPECT_TRUE(clip_complete(clip_path(folder.path(), index), many, {.video = video_shape}));
  }
  EXPECT_EQ(folder.listing(), "clips/012/012345.h5 clips/012/012346.h5");
}

TEST_F(Clip, BelongsToTheFileThatItBeginsFrom) {
  const Sharded v = filled(world, rows(video_shape, 1), DType::uint8);
  const auto write_as = [&](const ClipRecord& r) {
    write_clip(world, folder.path(), r, {.video = v}, true);
  };
  const auto complete = [&](const ClipRecord& r) {
    return clip_complete(file(), r, {video_shape, {}, {}, {}});
  };
  write_as(record_of_video());
  ClipRecord elsewhere = record_of_video();
  elsewhere.video = "copy.mp4";
  EXPECT_TRUE(complete(elsewhere)) << "the same bytes";
  EXPECT_FALSE(complete(record())) << "without a video";
  for (const auto change :
       std::vector<void (*)(ClipRecord&)>{[](ClipRecord& r) { r.input_hash->back() = '0'; },
                                          [](ClipRecord& r) { r.last_image_hash->back() = '0'; },
                                          [](ClipRecord& r) { r.input_frames = 4; },
                                          [](ClipRecord& r) { r.settings.strength = 0.5; }}) {
    ClipRecord other = record_of_video();
    change(other);
    EXPECT_FALSE(complete(other));
  }
  world.barrier();
  write_as(record());
  EXPECT_TRUE(complete(record()));
  EXPECT_FALSE(complete(record_of_video()));
}

TEST_F(Clip, IsReadAsAVideoByAnotherJob) {
  write();
  EXPECT_EQ(named_clip_file(folder.path() / "job.h5:3"), file());
  EXPECT_EQ(named_clip_file(file()), file());
  EXPECT_EQ(named_clip_file("out/cat.mp4"), std::nullopt);
  EXPECT_EQ(named_clip_file("out/job.h5:x"), std::nullopt);
  const SavedVideo video = SavedVideo::open(file(), "prompt.video", 5, 18 * 26);
  EXPECT_EQ(video.frames(), 5);
  EXPECT_EQ(video.height(), 18);
  EXPECT_EQ(video.width(), 26);
  EXPECT_EQ(video.fps(), 8);
  EXPECT_NO_THROW(video.check());
  const Tensor frame = video.read(4);
  ASSERT_EQ(frame.shape(), (Shape{18, 26, 3}));
  for (std::int64_t i = 0; i < frame.numel(); ++i) {
    ASSERT_EQ(frame.data<std::uint8_t>()[i], pixel_at(4 * frame.numel() + i)) << i;
  }
}

TEST_F(Clip, IsRefusedAsAVideoIfItIsNone) {
  const auto error = [&](std::int64_t frames, std::int64_t pixels) {
    std::string message;
    const Status status = status_of(
        [&] { SavedVideo::open(file(), "prompt.video", frames, pixels).check(); }, &message);
    EXPECT_NE(message.find("prompt.video: " + file().string()), std::string::npos) << message;
    return status;
  };
  EXPECT_EQ(error(10, 1000), Status::no_input);
  world.barrier();
  write();
  EXPECT_EQ(error(4, 1000), Status::data) << "too many frames";
  EXPECT_EQ(error(5, 467), Status::data) << "too many pixels";
  world.barrier();
  const Sharded l = filled(world, rows(latent_shape, 2), DType::float32);
  write_clip(world, folder.path(), record(), {.latents = l}, true);
  EXPECT_EQ(error(10, 1000), Status::data) << "without a video";
  world.barrier();
  if (world.rank() == 0) std::ofstream(file(), std::ios::trunc) << "no HDF5";
  world.barrier();
  EXPECT_EQ(error(10, 1000), Status::data);
}

// The bytes that HDF5 stores for an array of this many values, pixel_at, in one chunk.
std::string stored_chunk(const std::filesystem::path& scratch, std::int64_t values,
                         hdf5::Storage storage) {
  const Shape shape{values};
  std::string pixels;
  for (std::int64_t i = 0; i < values; ++i) pixels += static_cast<char>(pixel_at(i));
  const hdf5::File file = hdf5::create(scratch);
  const hdf5::Dataset dataset =
      hdf5::create_dataset(file.get(), "chunk", H5T_NATIVE_UINT8, shape, storage);
  hdf5::write_all(dataset.get(), H5T_NATIVE_UINT8, pixels.data());
  EXPECT_GE(H5Fflush(file.get(), H5F_SCOPE_LOCAL), 0);
  hsize_t bytes = 0;
  const hsize_t begin = 0;
  EXPECT_GE(H5Dget_chunk_storage_size(dataset.get(), &begin, &bytes), 0);
  std::string stored(bytes, '\0');
  std::uint32_t left_out = 0;
  EXPECT_GE(H5Dread_chunk(dataset.get(), H5P_DEFAULT, &begin, &left_out, stored.data()), 0);
  EXPECT_EQ(left_out, 0);
  return stored;
}

// HDF5 itself would read or write beyond a buffer with most of these chunks.
TEST_F(Clip, IsRefusedIfAChunkDoesNotGiveItsValuesExactly) {
  constexpr std::int64_t raw = 18 * 26 * 3;  // values of a frame
  constexpr std::uint32_t shuffle = 0b001, deflate = 0b010, checksum = 0b100;
  write();
  if (world.rank() == 0) {
    const auto stored = [&](std::int64_t values, hdf5::Storage storage) {
      return stored_chunk(folder.path() / "scratch.h5", values, storage);
    };
    const auto plain = [&](std::int64_t values) { return stored(values, hdf5::Storage::chunks); };
    const auto deflated = [&](std::int64_t values) {
      return stored(values, hdf5::Storage::deflated_chunks);
    };
    struct Chunk {
      const char* what;
      std::uint32_t left_out;  // filters
      std::string bytes;
      bool good = false;
    };
    const std::vector<Chunk> chunks{
        {"as it was", 0, deflated(raw), true},
        {"what deflate could not make smaller", deflate, plain(raw), true},
        {"1 byte", 0, "x"},
        {"3 bytes", 0, "xyz"},
        {"a checksum alone", 0, deflated(raw).substr(0, 4)},
        {"one value less", 0, deflated(raw - 1)},
        {"one value more", 0, deflated(raw + 1)},
        {"much more", 0, deflated(1000 * raw)},
        {"an incomplete stream", 0, deflated(raw).substr(0, 100)},
        {"without deflate, 3 bytes", deflate, "xyz"},
        {"without deflate, one value less", deflate, plain(raw - 1)},
        {"without deflate, one value more", deflate, plain(raw + 1)},
        {"without any filter, short", shuffle | deflate | checksum, "xyz"},
        {"without any filter", shuffle | deflate | checksum, plain(raw).substr(0, raw)},
        {"without shuffle", shuffle, deflated(raw)},
        {"without a checksum", checksum, deflated(raw)},
        {"without an unknown filter", 0b1000, deflated(raw)}};
    for (const Chunk& chunk : chunks) {
      SCOPED_TRACE(chunk.what);
      {
        const hdf5::File changed(H5Fopen(file().c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
        const hdf5::Dataset video = hdf5::open_dataset(changed.get(), "video");
        const std::array<hsize_t, 4> first{};
        ASSERT_GE(H5Dwrite_chunk(video.get(), H5P_DEFAULT, chunk.left_out, first.data(),
                                 chunk.bytes.size(), chunk.bytes.data()),
                  0);
      }
      EXPECT_EQ(clip_complete(file(), record(), shapes()), chunk.good);
      const SavedVideo video = SavedVideo::open(file(), "prompt.video", 5, 468);
      std::string message;
      EXPECT_EQ(status_of([&] { video.check(); }, &message),
                chunk.good ? Status::ok : Status::data);
      EXPECT_EQ(message.find("damaged") != std::string::npos, !chunk.good) << message;
      EXPECT_EQ(status_of([&] { video.read(0); }), chunk.good ? Status::ok : Status::data);
      EXPECT_EQ(status_of([&] { video.read(1); }), Status::ok);
    }
  }
  world.barrier();
}

TEST_F(Clip, IsRefusedIfAChunkIsMissingThoughItsChecksumIsThatOfZeros) {
  constexpr hsize_t frames = 3, pixels = 8 * 8 * 3;
  if (world.rank() == 0) {
    const std::string zeros(pixels, '\0');
    const std::vector<std::uint64_t> hashes(frames, hash_of(zeros));
    const Shape shape{frames, 8, 8, 3};
    constexpr auto storage = hdf5::Storage::deflated_chunks;
    const hdf5::File made = hdf5::create(file());
    hdf5::write_attribute(made.get(), "fps", 8.0);
    const hdf5::Dataset video =
        hdf5::create_dataset(made.get(), "video", H5T_NATIVE_UINT8, shape, storage);
    hdf5::write_attribute(video.get(), checksum_name, combined(hashes));
    const auto chunks =
        hdf5::filtered_chunks(H5T_NATIVE_UINT8, {1, 8, 8, 3}, storage, zeros.data());
    hdf5::write_filtered_chunk(video.get(), 0, chunks.front().skipped_filters,
                               chunks.front().bytes);
  }
  world.barrier();
  const SavedVideo video = SavedVideo::open(file(), "prompt.video", frames, 64);
  EXPECT_EQ(status_of([&] { video.check(); }), Status::data);
  EXPECT_EQ(status_of([&] { video.read(0); }), Status::ok);
  EXPECT_EQ(status_of([&] { video.read(1); }), Status::data);
}

TEST_F(Clip, IsReplacedOnlyWhenAsked) {
  write();
  std::string message;
  EXPECT_EQ(status_of([&] { write(); }, &message), Status::cannot_create);
  EXPECT_NE(message.find("000003.h5"), std::string::npos) << message;
  expect_content(file());
  write(true);
  expect_content(file());
  EXPECT_EQ(folder.listing(), "clips/000003.h5");
}

TEST_F(Clip, ThatCannotBeCreatedIsCannotCreateOnAllRanks) {
  if (world.rank() == 0) {
    std::filesystem::remove(folder.path() / "clips");
    std::ofstream(folder.path() / "clips") << "a file where the folder should be";
  }
  world.barrier();
  std::string message;
  EXPECT_EQ(status_of([&] { write(); }, &message), Status::cannot_create);
  EXPECT_NE(message.find("Not a directory"), std::string::npos) << message;
  EXPECT_EQ(folder.listing(), "clips");
}

// A limit on the size of files simulates a full disk: writes fail at the same point.
TEST_F(Clip, ThatDoesNotFitTheDiskIsAnErrorAndLeavesNothing) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  for (const rlim_t limit : {rlim_t{2000}, rlim_t{20000}, rlim_t{100000}}) {
    rlimit small = before;
    small.rlim_cur = limit;
    const Shape big{8, 64, 96, 3};
    const Shape big_latents{8, 16, 32, 48};  // 768 KiB
    const Sharded v = filled(world, rows(big, 1), DType::uint8);
    const Sharded l = filled(world, rows(big_latents, 2), DType::float32);
    setrlimit(RLIMIT_FSIZE, &small);
    std::string message;
    const Status status = status_of(
        [&] { write_clip(world, folder.path(), record(), {.video = v, .latents = l}, false); },
        &message);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(status, Status::io) << message;
    EXPECT_NE(message.find("File too large"), std::string::npos) << message;
    EXPECT_NE(message.find(".000003.h5.partial"), std::string::npos) << message;
    EXPECT_EQ(folder.listing(), "") << "limit " << limit;
    world.barrier();
  }
  write();  // HDF5 still works
  expect_content(file());
}

TEST_F(Clip, OfAnotherRequestOrDamagedIsNotComplete) {
  write();
  const auto differs = [&](auto change) {
    ClipRecord r = record();
    change(r);
    return !clip_complete(file(), r, shapes());
  };
  EXPECT_TRUE(differs([](ClipRecord& r) { r.prompt += "!"; }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.prompt.pop_back(); }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.negative_prompt = "blurred"; }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.settings.seed = 1; }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.settings.steps = 49; }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.settings.guidance = 6; }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.settings.fps = 16; }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.fingerprint[6] = '1'; }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.scheduler = "dpm"; }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.dtype = "bfloat16"; }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.token_ids.pop_back(); }));
  EXPECT_TRUE(differs([](ClipRecord& r) { r.token_ids[3] = 31999; }));
  EXPECT_FALSE(differs([](ClipRecord& r) { r.model = "another/path"; }));
  EXPECT_FALSE(differs([](ClipRecord& r) { r.layout = "frames"; }));
  EXPECT_FALSE(differs([](ClipRecord& r) { r.wall_seconds = 99; }));

  ClipShapes larger = shapes();
  larger.video[1] += 1;
  EXPECT_FALSE(clip_complete(file(), record(), larger));
  EXPECT_FALSE(clip_complete(folder.path() / "clips", record(), shapes()));
  EXPECT_FALSE(clip_complete(folder.path() / "missing.h5", record(), shapes()));

  const auto size = std::filesystem::file_size(file());
  world.barrier();
  if (world.rank() == 0) std::filesystem::resize_file(file(), size / 2);
  world.barrier();
  EXPECT_FALSE(clip_complete(file(), record(), shapes()));
}

// The address of the first chunk of a dataset in its file, and its bytes.
std::pair<haddr_t, hsize_t> first_chunk(const std::filesystem::path& path, const char* name) {
  const hdf5::File file = hdf5::open_for_reading(path);
  const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), name);
  const hdf5::Dataspace space(H5Dget_space(dataset.get()));
  std::array<hsize_t, 4> offset{};
  unsigned mask = 0;
  haddr_t address = 0;
  hsize_t bytes = 0;
  EXPECT_GE(
      H5Dget_chunk_info(dataset.get(), space.get(), 0, offset.data(), &mask, &address, &bytes), 0);
  return {address, bytes};
}

TEST_F(Clip, WithOneDamagedByteInAnyArrayIsNotComplete) {
  write();
  for (const char* name :
       {"video", "latents", "prompt_embeds", "negative_prompt_embeds", "token_ids"}) {
    const auto [address, bytes] = first_chunk(file(), name);
    const auto flip = [&, at = static_cast<std::streamoff>(address + bytes / 2)] {
      world.barrier();
      if (world.rank() == 0) {
        std::fstream stream(file(), std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(at);
        const char byte = static_cast<char>(stream.get());
        stream.seekp(at);
        stream.put(static_cast<char>(byte ^ 4));
      }
      world.barrier();
    };
    flip();
    EXPECT_FALSE(clip_complete(file(), record(), shapes())) << name;
    flip();
    EXPECT_TRUE(clip_complete(file(), record(), shapes())) << name;
  }
}

TEST_F(Clip, WhoseArraysAreLinksToOtherFilesIsNotComplete) {
  write();
  if (world.rank() == 0) {
    const auto aside = folder.path() / "aside.h5";
    std::filesystem::copy_file(file(), aside);
    const hdf5::File h5(H5Fopen(file().c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    ASSERT_GE(H5Ldelete(h5.get(), "video", H5P_DEFAULT), 0);
    ASSERT_GE(
        H5Lcreate_external("../aside.h5", "/video", h5.get(), "video", H5P_DEFAULT, H5P_DEFAULT),
        0);
  }
  world.barrier();
  EXPECT_FALSE(clip_complete(file(), record(), shapes()));
}

TEST_F(Clip, KeepsTextsOfAnyLength) {
  ClipRecord r = record();
  r.layout = std::string(200000, 'x');
  r.prompt = std::string(100000, 'p');
  const Sharded v = filled(world, rows(video_shape, 1), DType::uint8);
  write_clip(world, folder.path(), r, {.video = v}, false);
  EXPECT_TRUE(clip_complete(file(), r, {video_shape, {}, {}, {}}));
  const hdf5::File h5 = hdf5::open_for_reading(file());
  EXPECT_EQ(hdf5::read_text(h5.get(), "layout", 1 << 20), r.layout);
}

// The input that the fuzz target begins from.
TEST_F(Clip, OfTheCorpusIsComplete) {
  const ClipRecord r = fuzz::corpus_clip();
  ClipRecord other = r;
  other.prompt = "a dog";
  const std::filesystem::path whole = REELMESH_SOURCE "/tests/fuzz/corpus/clip/whole.h5";
  EXPECT_TRUE(clip_complete(whole, r, fuzz::corpus_clip_shapes()));
  EXPECT_FALSE(clip_complete(whole, other, fuzz::corpus_clip_shapes()));
}

// HDF5 itself would write beyond a buffer: it does not compare the two lengths of a text.
TEST_F(Clip, WhoseTextsHaveAnotherLengthThanTheirReferencesIsNotComplete) {
  write();
  std::ifstream in(file(), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  world.barrier();
  const std::size_t prompt = bytes.find(record().prompt);
  ASSERT_NE(prompt, std::string::npos);
  for (const char byte : {7, 8, 6}) {
    for (const std::size_t at : {prompt - 8, prompt - 6, prompt - 1, prompt - 16}) {
      if (world.rank() == 0) {
        std::string damaged = bytes;
        damaged[at] = byte;
        std::ofstream(file(), std::ios::binary) << damaged;
      }
      world.barrier();
      EXPECT_FALSE(clip_complete(file(), record(), shapes())) << prompt - at << " before the text";
      world.barrier();
    }
  }
}

}  // namespace
}  // namespace reelmesh
