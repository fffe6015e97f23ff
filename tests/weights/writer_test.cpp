#include "weights/writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"
#include "weights/checkpoint.hpp"

namespace {
int flushed = 0;  // calls of fsync
}

// In place of the C library's.
extern "C" int fsync(int) {
  ++flushed;
  return 0;
}

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::read_file;
using test::TempFolder;
using testing::UnorderedElementsAre;

const std::vector<TensorToWrite> tensors = {
    {"half", DType::float16, {3}},   {"wide", DType::float32, {2, 2}},
    {"brain", DType::bfloat16, {5}}, {"none", DType::float32, {0, 4}},
    {"one", DType::float32, {}},     {"ids", DType::int32, {2}}};

/// Element j of tensor i is 10 i + j.
void fill(std::size_t i, Tensor& out) {
  const auto value = [&](std::int64_t j) {
    return static_cast<float>(10 * i) + static_cast<float>(j);
  };
  if (out.dtype() == DType::int32) {
    for (std::int64_t j = 0; j < out.numel(); ++j)
      out.data<std::int32_t>()[j] = static_cast<int>(value(j));
    return;
  }
  visit_float(out.dtype(), [&](auto type) {
    using T = decltype(type);
    for (std::int64_t j = 0; j < out.numel(); ++j) out.data<T>()[j] = T(value(j));
  });
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

void check_values(const Checkpoint& checkpoint) {
  ASSERT_EQ(checkpoint.tensors().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].dtype == DType::int32) continue;
    const Tensor t = checkpoint.load(tensors[i].name, tensors[i].shape, DType::float32);
    for (std::int64_t j = 0; j < t.numel(); ++j) {
      EXPECT_EQ(t.data<float>()[j], static_cast<float>(10 * i) + static_cast<float>(j));
    }
  }
}

TEST(Writer, OneFile) {
  const TempFolder folder;
  write_safetensors(folder / "new/part", "model", tensors, fill);
  EXPECT_THAT(names_in(folder / "new/part"), UnorderedElementsAre("model.safetensors"));
  const Checkpoint checkpoint = Checkpoint::open(folder / "new/part", "model");
  check_values(checkpoint);
  EXPECT_EQ(checkpoint.tensors().at("ids").dtype, "I32");
  for (const auto& [name, info] : checkpoint.tensors()) {
    EXPECT_EQ(info.begin % (info.dtype == "F32" || info.dtype == "I32" ? 4 : 2), 0) << name;
  }
  const std::string bytes = read_file(folder / "new/part/model.safetensors");
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]) % 8, 0);
  EXPECT_THAT(bytes, testing::HasSubstr(R"("__metadata__":{"format":"pt"})"));
}

TEST(Writer, ShardsWithAnIndex) {
  const TempFolder folder;
  write_safetensors(folder.path(), "model", tensors, fill, 22);  // bytes: 6 + 16, 10 + 0 + 4 + 8
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("model-00001-of-00002.safetensors",
                                                            "model-00002-of-00002.safetensors",
                                                            "model.safetensors.index.json"));
  check_values(Checkpoint::open(folder.path(), "model"));
  const auto index = nlohmann::json::parse(read_file(folder / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 44);
  EXPECT_EQ(index["weight_map"]["half"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["ids"], "model-00002-of-00002.safetensors");
}

TEST(Writer, FlushesEachFileAndItsFolderUnlessToldNotTo) {
  const TempFolder folder;
  for (const auto& [flush, expected] : {std::pair{Flush::yes, 3 * 2}, {Flush::no, 0}}) {
    const int before = flushed;
    write_safetensors(folder.path(), "model", tensors, fill, 22, flush);
    EXPECT_EQ(flushed - before, expected);
    EXPECT_THAT(names_in(folder.path()), testing::SizeIs(3));
    check_values(Checkpoint::open(folder.path(), "model"));
  }
}

TEST(Writer, ATensorLargerThanAShardHasItsOwn) {
  const TempFolder folder;
  write_safetensors(folder.path(), "model", tensors, fill, 1);
  EXPECT_TRUE(fs::exists(folder / "model-00006-of-00006.safetensors"));
  check_values(Checkpoint::open(folder.path(), "model"));
}

TEST(Writer, ReplacesShardsByOneFile) {
  const TempFolder folder;
  write_safetensors(folder.path(), "model", tensors, fill, 22);
  write_safetensors(folder.path(), "model", {tensors[1]},
                    [](std::size_t, Tensor& out) { out.data<float>()[0] = 77; });
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), "model");
  EXPECT_EQ(checkpoint.tensors().size(), 1U);
  EXPECT_EQ(checkpoint.load("wide", {2, 2}, DType::float32).data<float>()[0], 77);
}

TEST(Writer, LeavesNothingBehindWhenFillingFails) {
  const TempFolder folder;
  expect_error(Status::stopped, [&] {
    write_safetensors(folder.path(), "model", tensors, [](std::size_t i, Tensor& out) {
      if (i == 2) fail(Status::stopped, "enough");
      fill(i, out);
    });
  });
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Writer, SaysWhereItCannotCreate) {
  const TempFolder folder;
  test::write_file(folder / "file", "x");
  expect_error(
      Status::cannot_create,
      [&] { write_safetensors(folder / "file/part", "model", tensors, fill); }, "file");
  fs::create_directory(folder / "part");
  expect_error(Status::cannot_create,
               [&] { write_safetensors(folder / "part", "no/such/folder/model", tensors, fill); });
}

TEST(Writer, AFullDiskIsAnErrorAndLeavesNothing) {
  const TempFolder folder;
  // A limit on the size of files simulates a full disk: write() fails after part of the data.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(
      Status::io,
      [&] {
        write_safetensors(folder.path(), "model", {{"big", DType::float32, {100'000}}}, fill);
      },
      "model.safetensors");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Writer, RefusesNamesTwice) {
  const TempFolder folder;
  expect_error(
      Status::internal,
      [&] {
        write_safetensors(folder.path(), "model", {tensors[0], tensors[0]}, fill);
      },
      "half");
}

}  // namespace
}  // namespace reelmesh
