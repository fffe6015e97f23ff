#include "weights/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

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

TEST(Checkpoint, FindsTensorsUnderWansOwnNames) {
  const TempFolder folder;
  const std::vector<std::pair<std::string, std::string>> names{
      {"blocks.0.attn1.to_q.weight", "blocks.0.self_attn.q.weight"},
      {"blocks.7.attn1.to_out.0.bias", "blocks.7.self_attn.o.bias"},
      {"blocks.7.attn1.norm_k.weight", "blocks.7.self_attn.norm_k.weight"},
      {"blocks.7.attn2.to_v.weight", "blocks.7.cross_attn.v.weight"},
      {"blocks.7.attn2.add_k_proj.weight", "blocks.7.cross_attn.k_img.weight"},
      {"blocks.7.attn2.norm_added_k.weight", "blocks.7.cross_attn.norm_k_img.weight"},
      {"blocks.0.ffn.net.0.proj.weight", "blocks.0.ffn.0.weight"},
      {"blocks.0.ffn.net.2.bias", "blocks.0.ffn.2.bias"},
      {"blocks.0.norm2.weight", "blocks.0.norm3.weight"},
      {"blocks.0.scale_shift_table", "blocks.0.modulation"},
      {"scale_shift_table", "head.modulation"},
      {"proj_out.weight", "head.head.weight"},
      {"condition_embedder.time_proj.bias", "time_projection.1.bias"},
      {"condition_embedder.time_embedder.linear_2.weight", "time_embedding.2.weight"},
      {"condition_embedder.text_embedder.linear_1.weight", "text_embedding.0.weight"},
      {"condition_embedder.image_embedder.ff.net.2.bias", "img_emb.proj.3.bias"},
      {"condition_embedder.image_embedder.norm1.weight", "img_emb.proj.0.weight"}};
  std::vector<std::string> held;
  ExpectedShapes expected;
  for (const auto& [current, original] : names) {
    EXPECT_EQ(current_name(original), current);
    EXPECT_THAT(older_names(current), testing::Contains(original));
    held.push_back(original);
    expected[current] = {2};
  }
  write(folder.path(), held, {2});
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
  EXPECT_TRUE(checkpoint.compare(expected).empty());
  EXPECT_THAT(checkpoint.load("blocks.0.norm2.weight", {2}, DType::float32).span<float>(),
              ElementsAre(0, 1));
  for (const char* name : {"blocks.0.norm.norm3.weight", "norm3.weight", "x.head.head.weight",
                           "blocks.0.self_attn.q.norm.weight", "x.modulation"}) {
    EXPECT_EQ(current_name(name), name);
  }
}

// What PyTorch makes of all bytes: tools/reference/make_float8_data.py.
TEST(Checkpoint, ReadsAllNumbersOf8Bits) {
  std::ifstream json(std::string(REELMESH_TEST_DATA) + "/float8.json");
  const auto reference = nlohmann::json::parse(json);
  ASSERT_EQ(reference.size(), 2U);
  for (const auto& [type, values] : reference.items()) {
    SCOPED_TRACE(type);
    const TempFolder folder;
    write_file(
        folder / "diffusion_pytorch_model.safetensors",
        raw_file(
            fmt::format(R"({{"w":{{"dtype":"{}","shape":[16,16],"data_offsets":[0,256]}}}})", type),
            256));
    const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
    checkpoint.check({{"w", {16, 16}}});
    const Tensor wide = checkpoint.load("w", {16, 16}, DType::float32),
                 brain = checkpoint.load("w", {16, 16}, DType::bfloat16),
                 rows = checkpoint.load_rows("w", {16, 16}, 3, 5, DType::float32);
    for (std::size_t i = 0; i < 256; ++i) {
      const float found = wide.span<float>()[i];
      if (values[i].is_null()) {
        EXPECT_TRUE(std::isnan(found)) << i;
        continue;
      }
      const float expected =
          values[i].is_string() ? std::stof(values[i].get<std::string>()) : values[i].get<float>();
      EXPECT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(expected)) << i;
      EXPECT_EQ(static_cast<float>(brain.span<BFloat16>()[i]), expected) << i;
      if (i >= 48 && i < 128) {
        EXPECT_EQ(rows.span<float>()[i - 48], found) << i;
      }
    }
  }
}

// A file with X.weight [4, 64] of float8 and tensors beside it. The bytes of data are 0, 1, 2, …
std::string scaled_file(const std::string& scale, const std::string& type, const Shape& shape,
                        std::int64_t bytes) {
  return raw_file(
      fmt::format(R"({{"x.weight":{{"dtype":"F8_E4M3","shape":[4,64],"data_offsets":[0,256]}},)"
                  R"("x.{}":{{"dtype":"{}","shape":{},"data_offsets":[256,{}]}},)"
                  R"("x.scale_input":{{"dtype":"F8_E4M3","shape":[],"data_offsets":[{},{}]}},)"
                  R"("scaled_fp8":{{"dtype":"F8_E4M3","shape":[0],"data_offsets":[{},{}]}}}})",
                  scale, type, nlohmann::json(shape).dump(), 256 + bytes, 256 + bytes, 257 + bytes,
                  257 + bytes, 257 + bytes),
      static_cast<std::size_t>(257 + bytes));
}

TEST(Checkpoint, MultipliesByScales) {
  const float scale[] = {0.001953125F, 0.02734375F, 1.5F, 2.0F};  // of F8_E4M3: 1, 14, 60, 64
  const TempFolder folder;
  const fs::path file = folder / "diffusion_pytorch_model.safetensors";
  fs::create_directory(folder / "plain");
  write_file(
      folder / "plain" / "diffusion_pytorch_model.safetensors",
      raw_file(R"({"x.weight":{"dtype":"F8_E4M3","shape":[4,64],"data_offsets":[0,256]}})", 256));
  const Tensor plain =
      Checkpoint::open(folder / "plain", stem).load("x.weight", {4, 64}, DType::float32);
  for (const std::string name : {"scale_weight", "weight_scale"}) {
    for (const bool each_row : {false, true}) {
      std::string bytes =
          each_row ? scaled_file(name, "F8_E4M3", {4, 1}, 4) : scaled_file(name, "F8_E4M3", {}, 1);
      const char codes[] = {1, 14, 60, 64};
      for (std::size_t i = 0; i < (each_row ? 4U : 1U); ++i) {
        bytes[bytes.size() - (each_row ? 5 : 2) + i] = each_row ? codes[i] : codes[2];
      }
      write_file(file, bytes);
      const Checkpoint checkpoint = Checkpoint::open(folder.path(), stem);
      EXPECT_TRUE(checkpoint.compare({{"x.weight", {4, 64}}}).empty());
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const Tensor all = checkpoint.load("x.weight", {4, 64}, dtype),
                     some = checkpoint.load_rows("x.weight", {4, 64}, 1, 2, dtype);
        for (std::size_t i = 0; i < 256; ++i) {
          const float expected = plain.span<float>()[i] * scale[each_row ? i / 64 : 2];
          if (std::isnan(expected)) continue;
          const bool wide = dtype == DType::float32;
          const float found =
              wide ? all.span<float>()[i] : static_cast<float>(all.span<BFloat16>()[i]);
          EXPECT_EQ(found, wide ? expected : static_cast<float>(BFloat16(expected))) << i;
          if (wide && i >= 64 && i < 192) {
            EXPECT_EQ(some.span<float>()[i - 64], found) << i;
          }
        }
      }
    }
  }
  write_file(file, scaled_file("weight_scale", "F8_E4M3", {2, 2}, 4));
  expect_error(
      Status::data,
      [&] {
        Checkpoint::open(folder.path(), stem).load("x.weight", {4, 64}, DType::float32);
      },
      "x.weight_scale", "[2, 2]", "one for each of 4 rows");
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
  fs::create_directory(folder / "quantized");
  write_file(folder / "quantized" / "wan-Q4_K_M.gguf", "x");
  expect_error(Status::no_input, opening(folder / "quantized"), "wan-Q4_K_M.gguf", "GGUF",
               "converted to safetensors");
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
