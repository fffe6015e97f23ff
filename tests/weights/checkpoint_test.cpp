#include "weights/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "raw_file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"
#include "weights/names.hpp"
#include "weights/writer.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::raw_file;
using test::TempFolder;
using test::write_file;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* stem = "diffusion_pytorch_model";

/// Writes a checkpoint with these tensors, all of this shape; elements are 0, 1, 2, …
void write(const fs::path& folder, const std::vector<std::string>& names, const Shape& shape,
           DType dtype = DType::float32, std::int64_t max_shard_bytes = 1 << 30) {
  std::vector<TensorToWrite> list;
  for (const std::string& name : names) list.push_back({name, dtype, shape});
  write_safetensors(
      folder, stem, list,
      [](std::size_t, Tensor& out) {
        visit_float(out.dtype(), [&](auto type) {
          using T = decltype(type);
          for (std::int64_t i = 0; i < out.numel(); ++i)
            out.data<T>()[i] = T(static_cast<float>(i));
        });
      },
      max_shard_bytes);
}

auto opening(const fs::path& folder) {
  return [folder] { Checkpoint::open(folder, stem); };
}

TEST(Checkpoint, LoadsWholeTensorsAndRows) {
  const TempFolder folder;
  write(folder.path(), {"w"}, {4, 3}, DType::bfloat16);
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
  EXPECT_TRUE(checkpoint.has("w"));
  EXPECT_FALSE(checkpoint.has("v"));
  EXPECT_EQ(checkpoint.load("w", {4, 3}, DType::bfloat16).data<BFloat16>()[11].bits,
            BFloat16(11.0F).bits);
  const Tensor rows = checkpoint.load_rows("w", {4, 3}, 1, 2, DType::float32);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_THAT(rows.span<float>(), ElementsAre(3, 4, 5, 6, 7, 8));
  std::vector<float> spaced(8, -1.0F);
  checkpoint.read_rows("w", {4, 3}, 1, 2, DType::float32, spaced.data(), 4);
  EXPECT_THAT(spaced, ElementsAre(3, 4, 5, -1, 6, 7, 8, -1)) << "rows four elements apart";
  const Tensor none = checkpoint.load_rows("w", {4, 3}, 4, 0, DType::float32);
  EXPECT_EQ(none.shape(), (Shape{0, 3}));
  expect_error(Status::internal, [&] { checkpoint.load_rows("w", {4, 3}, 3, 2, DType::float32); });
}

TEST(Checkpoint, SaysWhichTensorIsMissingOrOfAnotherShape) {
  const TempFolder folder;
  write(folder.path(), {"w"}, {4, 3});
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
  expect_error(
      Status::data,
      [&] {
        checkpoint.load("v", {4, 3}, DType::float32);
      },
      folder.path().string(), "'v'", "[4, 3]");
  expect_error(
      Status::data,
      [&] {
        checkpoint.load("w", {3, 4}, DType::float32);
      },
      "diffusion_pytorch_model.safetensors", "'w'", "[4, 3]", "[3, 4]");
  expect_error(
      Status::data, [&] { checkpoint.load_rows("w", {12}, 0, 1, DType::float32); }, "'w'");
  EXPECT_NO_THROW(checkpoint.check({{"w", {4, 3}}}));
  expect_error(
      Status::data,
      [&] {
        checkpoint.check({{"w", {4, 3}}, {"x", {1}}});
      },
      "'x'");
  expect_error(
      Status::data,
      [&] {
        checkpoint.check({{"w", {4}}});
      },
      "'w'", "[4]");
}

TEST(Checkpoint, TakesAOneByOneConvolutionForALinearLayer) {
  const TempFolder folder;
  write(folder.path(), {"w"}, {4, 3, 1, 1});
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
  const Tensor w = checkpoint.load("w", {4, 3}, DType::float32);
  EXPECT_EQ(w.shape(), (Shape{4, 3}));
  EXPECT_EQ(w.data<float>()[11], 11.0F);
  EXPECT_TRUE(checkpoint.compare({{"w", {4, 3}}}).empty());
  EXPECT_FALSE(checkpoint.compare({{"w", {4, 1, 3}}}).empty());
  EXPECT_THROW(checkpoint.load("w", {12}, DType::float32), Error);
}

TEST(Checkpoint, ReadsRowsOfATableWithABatchAxis) {
  const TempFolder folder;
  write(folder.path(), {"table"}, {1, 4, 3});
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
  const Tensor rows = checkpoint.load_rows("table", {4, 3}, 1, 2, DType::float32);
  EXPECT_THAT(rows.span<float>(), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_TRUE(checkpoint.compare({{"table", {1, 4, 3}}}).empty());
  EXPECT_FALSE(checkpoint.compare({{"table", {2, 4, 3}}}).empty());
}

TEST(Checkpoint, RefusesTypesThatAreNotFloating) {
  const TempFolder folder;
  write_file(folder / "diffusion_pytorch_model.safetensors",
             raw_file(R"({"w":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8));
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
  expect_error(
      Status::data,
      [&] {
        checkpoint.check({{"w", {1}}});
      },
      "'w'", "I64");
  expect_error(
      Status::data, [&] { checkpoint.load("w", {1}, DType::float32); }, "'w'", "I64");
}

TEST(Checkpoint, ComparesWithWhatAModelExpects) {
  const TempFolder folder;
  write(folder.path(), {"a", "b", "x.query.weight", "extra"}, {2});
  const Difference difference =
      Checkpoint::open(folder.path(), stem)
          .compare({{"a", {2}}, {"b", {3}}, {"c", {1}}, {"x.to_q.weight", {2}}});
  EXPECT_THAT(difference.missing, ElementsAre("c"));
  EXPECT_THAT(difference.unexpected, ElementsAre("extra"));
  ASSERT_EQ(difference.wrong_shapes.size(), 1U);
  EXPECT_EQ(difference.wrong_shapes[0].name, "b");
  EXPECT_EQ(difference.wrong_shapes[0].found, Shape{2});
  EXPECT_EQ(difference.wrong_shapes[0].expected, Shape{3});
  EXPECT_FALSE(difference.empty());
  EXPECT_TRUE(Difference().empty());
}

TEST(Checkpoint, FindsTensorsUnderOlderNames) {
  const TempFolder folder;
  write(folder.path(),
        {"m.0.query.weight", "m.0.key.bias", "m.0.value.weight", "m.0.proj_attn.weight",
         "encoder.embed_tokens.weight"},
        {2});
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
  for (const char* name : {"m.0.to_q.weight", "m.0.to_k.bias", "m.0.to_v.weight",
                           "m.0.to_out.0.weight", "shared.weight"}) {
    EXPECT_TRUE(checkpoint.has(name)) << name;
    EXPECT_THAT(checkpoint.load(name, {2}, DType::float32).span<float>(), ElementsAre(0, 1))
        << name;
  }
  EXPECT_FALSE(checkpoint.has("m.1.to_q.weight"));
  EXPECT_FALSE(checkpoint.has("m.0.to_q.bias"));
  EXPECT_THAT(checkpoint.compare({{"shared.weight", {2}}}).unexpected.size(), 4U);
}

TEST(Names, AreRenamedOnlyAtTheirEnd) {
  EXPECT_EQ(current_name("a.query.weight"), "a.to_q.weight");
  EXPECT_EQ(current_name("a.proj_attn.bias"), "a.to_out.0.bias");
  EXPECT_EQ(current_name("a.query.norm.weight"), "a.query.norm.weight");
  EXPECT_EQ(current_name("encoder.embed_tokens.weight"), "shared.weight");
  EXPECT_THAT(older_names("a.to_k.weight"), ElementsAre("a.key.weight"));
  EXPECT_THAT(older_names("a.to_out.2.weight"), IsEmpty());
  EXPECT_THAT(older_names("to_k"), IsEmpty());
}

TEST(Checkpoint, TheIndexDecides) {
  const TempFolder folder;
  write(folder.path(), {"a", "b", "c"}, {2}, DType::float32, 8);
  write_file(folder / "diffusion_pytorch_model.safetensors", "not read");
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
  EXPECT_EQ(checkpoint.tensors().size(), 3U);
  EXPECT_EQ(checkpoint.tensors().at("b").file.filename(),
            "diffusion_pytorch_model-00002-of-00003.safetensors");
}

TEST(Checkpoint, FollowsSymbolicLinksAsTheHubsCacheHasThem) {
  const TempFolder folder;
  write(folder / "real", {"a", "b"}, {2}, DType::float32, 8);
  fs::create_directories(folder / "blobs");
  fs::create_directories(folder / "snapshot");
  int blob = 0;
  for (const auto& entry : fs::directory_iterator(folder / "real")) {
    const fs::path target = folder / "blobs" / std::to_string(blob++);
    fs::rename(entry.path(), target);
    fs::create_symlink(fs::path("../blobs") / target.filename(),
                       folder / "snapshot" / entry.path().filename());
  }
  const Checkpoint checkpoint = Checkpoint::open(folder / "snapshot", stem);
  EXPECT_THAT(checkpoint.load("b", {2}, DType::float32).span<float>(), ElementsAre(0, 1));
}

TEST(Checkpoint, SaysWhatIsThereInsteadOfSafetensors) {
  const TempFolder folder;
  expect_error(Status::no_input, opening(folder / "none"), "none", "no such folder");
  expect_error(Status::no_input, opening(folder.path()), folder.path().string(),
               "diffusion_pytorch_model.safetensors");
  write_file(folder / "diffusion_pytorch_model.bin", "x");
  expect_error(Status::no_input, opening(folder.path()), "diffusion_pytorch_model.bin",
               "safetensors only");
  write_file(folder / "diffusion_pytorch_model.fp16.safetensors", "x");
  expect_error(Status::no_input, opening(folder.path()),
               "diffusion_pytorch_model.fp16.safetensors");
}

class BadIndex : public testing::Test {
 protected:
  /// Expects opening with this index to fail with this status and a message with these parts.
  template <class... Parts>
  void refused(std::string_view index, Status status, const Parts&... parts) {
    write_file(folder_ / "part" / "diffusion_pytorch_model.safetensors.index.json", index);
    SCOPED_TRACE(index);
    expect_error(status, opening(folder_ / "part"), parts...);
  }
  void SetUp() override {
    write(folder_ / "part", {"a"}, {2});
    fs::copy_file(folder_ / "part" / "diffusion_pytorch_model.safetensors", folder_ / "outside");
    fs::create_directory(folder_ / "part" / "sub");
    fs::copy_file(folder_ / "outside", folder_ / "part" / "sub" / "inside");
  }
  TempFolder folder_;
};

TEST_F(BadIndex, NamesAFileOutsideTheFolder) {
  const std::string absolute = (folder_ / "outside").string();
  for (const std::string& name : {std::string("../outside"), absolute, std::string("sub/inside"),
                                  std::string(".."), std::string("."), std::string(""),
                                  std::string("sub/../diffusion_pytorch_model.safetensors"),
                                  std::string("..\\\\outside"), std::string("a\\u0000b")}) {
    refused(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name), Status::data,
            "weight_map names");
  }
}

TEST_F(BadIndex, NamesWhatIsNotThere) {
  refused(R"({"weight_map":{"a":"gone.safetensors"}})", Status::no_input, "gone.safetensors");
  refused(R"({"weight_map":{"b":"diffusion_pytorch_model.safetensors"}})", Status::data, "'b'",
          "diffusion_pytorch_model.safetensors");
  refused(R"({"weight_map":{"a":"sub"}})", Status::data, "sub");
}

TEST_F(BadIndex, IsNotAnIndex) {
  refused("", Status::data, "index.json");
  refused("[]", Status::data, "weight_map");
  refused("{}", Status::data, "weight_map");
  refused(R"({"weight_map":[]})", Status::data, "weight_map");
  refused(R"({"weight_map":{}})", Status::data, "weight_map");
  refused(R"({"weight_map":{"a":3}})", Status::data, "'a'");
  refused(R"({"weight_map":{"a":"x","a":"y"}})", Status::data, "twice");
  refused("{\"weight_map\":" + std::string(100'000, '['), Status::data, "nested");
}

TEST(CheckpointErrors, NameLinksThatLeadNowhere) {
  const TempFolder folder;
  fs::create_symlink("../../blobs/0123", folder / "model.safetensors");
  expect_error(
      Status::no_input, [&] { Checkpoint::open(folder.path(), "model"); }, "model.safetensors",
      "is a link to ../../blobs/0123, which is not there");
}

}  // namespace
}  // namespace reelmesh
