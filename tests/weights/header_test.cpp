// Malicious and damaged headers are refused.
#include "weights/header.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "support/expect_error.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

using test::expect_error;

TensorInfos parse(std::string_view header, std::int64_t data_bytes) {
  return parse_header(header, 100, data_bytes, "w.safetensors");
}

/// A header with one tensor `a`, described by this entry.
std::string one(std::string_view entry) { return fmt::format("{{\"a\":{}}}", entry); }
std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return one(
      fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":{}}})", dtype, shape, offsets));
}

template <class... Parts>
void refused(std::string_view header, std::int64_t data_bytes, const Parts&... parts) {
  expect_error(
      Status::data, [&] { parse(header, data_bytes); }, "w.safetensors", parts...);
}

TEST(Header, ReadsTensorsAndTheirOffsets) {
  const TensorInfos tensors = parse(
      R"({"__metadata__":{"format":"pt"},
          "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
          "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
          "none":{"dtype":"I64","shape":[0,7],"data_offsets":[4,4]},
          "c":{"dtype":"BOOL","shape":[3],"data_offsets":[16,19],"more":"ignored"}}   )",
      19);
  ASSERT_EQ(tensors.size(), 4U);
  EXPECT_EQ(tensors.at("b").dtype, "BF16");
  EXPECT_EQ(tensors.at("b").shape, (Shape{2, 3}));
  EXPECT_EQ(tensors.at("b").bytes, 12);
  EXPECT_EQ(tensors.at("b").begin, 104);
  EXPECT_EQ(tensors.at("a").shape, Shape{});
  EXPECT_EQ(tensors.at("none").bytes, 0);
  EXPECT_EQ(tensors.at("c").file, "w.safetensors");
  EXPECT_TRUE(parse("{}", 0).empty());
}

TEST(Header, TypesSmallerThanAByteFillWholeBytes) {
  EXPECT_EQ(parse(entry("F4", "[2,3]", "[0,3]"), 3).at("a").bytes, 3);
  refused(entry("F4", "[3]", "[0,2]"), 2, "'a'", "whole bytes");
}

TEST(Header, RefusesWhatIsNotJson) {
  refused("", 0, "'{'");
  refused(" {}", 0, "'{'");
  refused("\xef\xbb\xbf{}", 0, "'{'");
  refused("[]", 0, "'{'");
  refused("{", 0, "JSON");
  refused("{}x", 0, "JSON");
  refused("{}{}", 0, "JSON");
  refused("{\"a\":}", 0, "JSON");
  refused("{/* */}", 0, "JSON");
  refused(std::string("{}\0x", 4), 0, "zero byte");
  refused("{\"\xff\xfe\":{}}", 0, "JSON");
  refused("{\"__metadata__\":{\"k\":\"\xc3\x28\"}}", 0, "JSON");
}

TEST(Header, RefusesDuplicateKeys) {
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
              "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1, "'a' appears twice");
  refused(one(R"({"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]})"), 1, "'dtype'");
  refused(R"({"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},
              "a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
          0, "twice");
}

TEST(Header, RefusesDeepNesting) {
  refused(one(entry("F32", "[[1]]", "[0,4]")), 4, "nested");
  const std::string deep = "{\"a\":" + std::string(3'000'000, '[');
  refused(deep, 0, "nested");
  refused(deep + std::string(3'000'000, ']') + "}", 0, "nested");
}

TEST(Header, RefusesTooManyValues) {
  std::string shape = "[";
  for (int i = 0; i < 17; ++i) shape += i == 0 ? "1" : ",1";
  refused(entry("U8", shape + "]", "[0,1]"), 1, "17 axes");
  std::string header = "{\"a\":[0";
  for (std::size_t i = 0; i < 16 * max_tensors; ++i) header += ",0";
  refused(header + "]}", 0, "JSON values");
}

TEST(Header, RefusesMembersOfTheWrongKind) {
  refused(one("3"), 0, "'a'", "an object");
  refused(one("null"), 0, "'a'");
  refused(one("{}"), 0, "'a'", "dtype");
  refused(one(R"({"dtype":"F32","shape":[1]})"), 4, "'a'", "data_offsets");
  refused(one(R"({"dtype":"F32","data_offsets":[0,4]})"), 4, "'a'", "shape");
  refused(one(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})"), 4, "'a'", "dtype");
  refused(entry("F33", "[1]", "[0,4]"), 4, "'a'", "F33");
  refused(entry("f32", "[1]", "[0,4]"), 4, "'a'", "f32");
  refused(entry("F32", "1", "[0,4]"), 4, "'a'", "array");
  refused(entry("F32", "{}", "[0,4]"), 4, "'a'", "array");
  refused(entry("F32", "[1]", "4"), 4, "'a'", "array");
  refused(entry("F32", "[1]", "[0,4,4]"), 4, "'a'", "expected 2");
  refused(entry("F32", "[1]", "[4]"), 4, "'a'", "expected 2");
  refused(R"({"__metadata__":3})", 0, "__metadata__");
  refused(R"({"__metadata__":{"a":3}})", 0, "__metadata__");
}

TEST(Header, RefusesNumbersThatAreNoSizes) {
  for (const char* number : {"-1", "1.0", "1e0", "\"1\"", "true", "null", "18446744073709551616",
                             "18446744073709551615", "9223372036854775808"}) {
    SCOPED_TRACE(number);
    refused(entry("U8", fmt::format("[{}]", number), "[0,1]"), 1, "'a'", "shape");
    refused(entry("U8", "[1]", fmt::format("[0,{}]", number)), 1, "'a'", "data_offsets");
    refused(entry("U8", "[1]", fmt::format("[{},1]", number)), 1, "'a'", "data_offsets");
  }
  refused(entry("U8", "[1e999]", "[0,1]"), 1);
}

TEST(Header, RefusesShapesThatOverflow) {
  refused(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0, "'a'");
  refused(entry("F32", "[9223372036854775807,2]", "[0,0]"), 0, "'a'");
  refused(entry("F32", "[4611686018427387904]", "[0,0]"), 0, "'a'");  // 2^62 × 4 bytes = 2^64
  refused(entry("F32", "[2305843009213693952,8]", "[0,0]"), 0, "'a'");
}

TEST(Header, RefusesLengthsThatDoNotFollowFromTypeAndShape) {
  refused(entry("F32", "[2]", "[0,4]"), 4, "'a'", "4 bytes", "expected 8");
  refused(entry("F32", "[]", "[0,0]"), 0, "'a'");
  refused(entry("F32", "[0]", "[0,4]"), 4, "'a'");
  refused(entry("BF16", "[2]", "[0,8]"), 8, "'a'");
}

TEST(Header, RefusesPlacesOutsideTheFile) {
  refused(entry("F32", "[2]", "[0,8]"), 4, "'a'", "4 bytes of data");
  refused(entry("F32", "[1]", "[4,0]"), 4, "'a'");
  refused(entry("F32", "[1]", "[9223372036854775803,9223372036854775807]"), 4, "'a'");
}

TEST(Header, RefusesGapsOverlapsAndTrailingData) {
  const auto two = [](int a, int b) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[{},{}]}},
                            "b":{{"dtype":"U8","shape":[4],"data_offsets":[{},{}]}}}})",
                       a, a + 4, b, b + 4);
  };
  EXPECT_EQ(parse(two(0, 4), 8).size(), 2U);
  EXPECT_EQ(parse(two(4, 0), 8).size(), 2U);
  refused(two(0, 2), 6, "'b'", "overlap");
  refused(two(0, 0), 4, "'b'", "overlap");
  refused(two(0, 5), 9, "'b'", "gap");
  refused(two(1, 5), 9, "'a'", "gap");
  refused(two(0, 4), 9, "8 bytes", "9");
  refused("{}", 1, "1");
}

TEST(Shown, IsShortAndPrintable) {
  EXPECT_EQ(printable("a\nb\x1b\xff"), "a?b??");
  EXPECT_EQ(printable(std::string(1000, 'x')), fmt::format("{:x>120}...", ""));
}

// Takes a fraction of a second; in quadratic time it would exceed the time limit of the test.
TEST(Header, ReadsManyTensorsInLinearTime) {
  std::string header = "{";
  for (int i = 0; i < 150'000; ++i) {
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                          i == 0 ? "" : ",", i);
  }
  EXPECT_EQ(parse(header + "}", 0).size(), 150'000U);
}

}  // namespace
}  // namespace reelmesh
