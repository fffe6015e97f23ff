#include "weights/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <functional>
#include <random>

#include "raw_file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

using test::expect_error;
using test::length_field;
using test::raw_file;
using test::TempFolder;
using test::wait_for_another_time;
using test::write_file;
using testing::ElementsAre;

/// The float32 tensor follows a tensor of 1 byte, so it is not aligned in the file.
const char* const mixed_header =
    R"({"flag":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},
        "w":{"dtype":"F32","shape":[2,2],"data_offsets":[1,17]},
        "h":{"dtype":"F16","shape":[2],"data_offsets":[17,21]},
        "b":{"dtype":"BF16","shape":[1,2],"data_offsets":[21,25]}})";

std::string mixed_file() {
  std::string out = raw_file(mixed_header, 1);
  const float w[] = {1.0F, -2.0F, 0.5F, 1e-3F};
  const std::uint16_t halves[] = {0x3c00, 0xc100, 0x3f80, 0xc020};  // 1, −2.5 as F16 and as BF16
  out.append(reinterpret_cast<const char*>(w), sizeof(w));
  out.append(reinterpret_cast<const char*>(halves), sizeof(halves));
  return out;
}

TEST(Safetensors, LoadsEveryFloatingTypeAtAnyAddress) {
  const TempFolder folder;
  write_file(folder / "w.safetensors", mixed_file());
  const SafetensorsFile file = SafetensorsFile::open(folder / "w.safetensors");
  EXPECT_EQ(file.tensors().size(), 4U);
  const Tensor w = file.load("w", DType::float32);
  EXPECT_EQ(w.shape(), (Shape{2, 2}));
  EXPECT_THAT(w.span<float>(), ElementsAre(1.0F, -2.0F, 0.5F, 1e-3F));
  EXPECT_THAT(file.load("h", DType::float32).span<float>(), ElementsAre(1.0F, -2.5F));
  EXPECT_THAT(file.load("b", DType::float32).span<float>(), ElementsAre(1.0F, -2.5F));
  EXPECT_EQ(file.load("w", DType::bfloat16).data<BFloat16>()[3].bits, BFloat16(1e-3F).bits);
  EXPECT_EQ(file.load("b", DType::float16).data<Float16>()[1].bits, 0xc100);
  EXPECT_THAT(file.load_elements("w", 1, {2}, DType::float32).span<float>(),
              ElementsAre(-2.0F, 0.5F));
  expect_error(Status::internal, [&] { file.load_elements("w", 3, {2}, DType::float32); });
}

TEST(Safetensors, LoadsMoreThanOneChunk) {
  const TempFolder folder;
  const std::int64_t n = (std::int64_t{9} << 20) + 5;
  std::string bytes = raw_file(
      fmt::format(R"({{"w":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}}}})", n, 2 * n), 0);
  std::vector<BFloat16> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i].bits = static_cast<std::uint16_t>(i % 16001);
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * 2);
  write_file(folder / "w.safetensors", bytes);
  const SafetensorsFile file = SafetensorsFile::open(folder / "w.safetensors");
  for (int round = 0; round < 2; ++round) {
    const Tensor w = file.load("w", DType::float32);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(w.data<float>()[i], static_cast<float>(values[i])) << i;
    }
  }
}

TEST(Safetensors, OtherTypesMayBeThereButNotLoaded) {
  const TempFolder folder;
  write_file(folder / "w.safetensors", mixed_file());
  const SafetensorsFile file = SafetensorsFile::open(folder / "w.safetensors");
  expect_error(
      Status::data, [&] { file.load("flag", DType::float32); }, "w.safetensors", "'flag'", "BOOL");
  expect_error(
      Status::data, [&] { file.load("nothing", DType::float32); }, "w.safetensors", "'nothing'");
}

TEST(Safetensors, RefusesFilesThatAreMissingOrNoFiles) {
  const TempFolder folder;
  const auto open = [&](const char* name) {
    return [&folder, name] { SafetensorsFile::open(folder / name); };
  };
  expect_error(Status::no_input, open("none.safetensors"), "none.safetensors");
  std::filesystem::create_directory(folder / "folder");
  expect_error(Status::data, open("folder"), "regular file");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(Status::data, open("pipe"), "regular file");
  write_file(folder / "empty", "");
  expect_error(Status::data, open("empty"), "0 bytes");
  write_file(folder / "short", "1234567");
  expect_error(Status::data, open("short"), "7 bytes");
}

TEST(Safetensors, RefusesLengthsThatLie) {
  const TempFolder folder;
  const std::string good = mixed_file();
  const auto refused = [&](const std::string& bytes) {
    write_file(folder / "w.safetensors", bytes);
    expect_error(
        Status::data, [&] { SafetensorsFile::open(folder / "w.safetensors"); }, "w.safetensors");
  };
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{1}, good.size() - 7, std::uint64_t{100'000'001},
        std::uint64_t{1} << 31, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    SCOPED_TRACE(length);
    refused(length_field(length) + good.substr(8));
  }
  // Truncated anywhere, even between tensors; one byte too many.
  for (std::size_t n = 0; n < good.size(); ++n) refused(good.substr(0, n));
  refused(good + '\0');
}

TEST(Safetensors, RefusesHeadersOfMoreThan100Megabytes) {
  const TempFolder folder;
  write_file(folder / "w.safetensors", length_field(100'000'001) + "{}");
  std::filesystem::resize_file(folder / "w.safetensors", 200'000'000);  // sparse
  expect_error(
      Status::data, [&] { SafetensorsFile::open(folder / "w.safetensors"); }, "100000001",
      "100000000");
}

// Otherwise a model would be a mixture of the bytes before and after the change.
TEST(Safetensors, AFileThatChangesIsRefused) {
  const TempFolder folder;
  const std::filesystem::path path = folder / "w.safetensors";
  const std::vector<std::function<void()>> changes{
      [&] { std::filesystem::resize_file(path, 20); }, [&] { write_file(path, mixed_file()); },
      [&] {
        write_file(folder / "other", mixed_file());
        std::filesystem::rename(folder / "other", path);
      },
      [&] { std::filesystem::remove(path); }};
  for (const auto& change : changes) {
    write_file(path, mixed_file());
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const DType type : {DType::float32, DType::bfloat16}) file.load("w", type);
    wait_for_another_time(path);
    change();
    for (const DType type : {DType::float32, DType::bfloat16}) {
      expect_error(
          Status::data, [&] { file.load("w", type); }, "w.safetensors", "changed");
    }
  }
}

/// A randomly damaged file either loads (with another value or name) or is refused as damaged.
TEST(Safetensors, MutationsLoadOrAreRefused) {
  const TempFolder folder;
  const std::string good = mixed_file();
  const std::vector<std::string> pieces = {"18446744073709551616",
                                           "-1",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           "\"",
                                           ",",
                                           ":",
                                           "\\u0000",
                                           "\xff",
                                           "1e999",
                                           "null",
                                           "9223372036854775807",
                                           "4294967296",
                                           "[[[[[[[[",
                                           "\"shape\":[1],",
                                           std::string(1, '\0')};
  std::mt19937 random(20240229);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::size_t header_end = good.size() - 25;
  int loaded = 0, refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = good;
    const std::size_t edits = 1 + below(3);
    for (std::size_t edit = 0; edit < edits; ++edit) {
      const std::size_t at =
          below(below(8) == 0 ? bytes.size() : std::min(header_end, bytes.size()));
      switch (below(5)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
          break;
        case 2:
          bytes.erase(at, 1 + below(8));
          break;
        case 3:
          bytes.insert(at, pieces[below(pieces.size())]);
          break;
        default:
          bytes[at] = "0123456789"[below(10)];
      }
      if (bytes.empty()) bytes = "x";
    }
    // Half of the time the length field is corrected, so that the damage reaches the JSON parser.
    if (bytes.size() > 40 && below(2) == 0)
      bytes.replace(0, 8, length_field(bytes.size() - 8 - 25));
    SCOPED_TRACE(round);
    write_file(folder / "w.safetensors", bytes);
    try {
      const SafetensorsFile file = SafetensorsFile::open(folder / "w.safetensors");
      double sum = 0;
      for (const auto& [name, info] : file.tensors()) {
        if (!loadable(info.dtype)) continue;
        const Tensor tensor = file.load(name, DType::float32);
        for (const float x : tensor.span<float>()) sum += std::isfinite(x) ? x : 0;
      }
      EXPECT_FALSE(std::isnan(sum));
      ++loaded;
    } catch (const Error& error) {
      ASSERT_EQ(error.status(), Status::data) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(loaded, 50) << "the damage never leaves a file that loads";
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace reelmesh
