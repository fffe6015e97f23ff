#include "base/units.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/number.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using test::expect_error;

TEST(ParseBytes, ReadsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("1024", "x"), 1024);
  EXPECT_EQ(parse_bytes("7B", "x"), 7);
  EXPECT_EQ(parse_bytes("500MB", "x"), 500'000'000);
  EXPECT_EQ(parse_bytes("16GiB", "x"), std::int64_t{16} << 30);
  EXPECT_EQ(parse_bytes("1.5 KiB", "x"), 1536);
  EXPECT_EQ(parse_bytes("2TiB", "x"), std::int64_t{2} << 40);
  EXPECT_EQ(parse_bytes("0", "x"), 0);
}

TEST(ParseBytes, RefusesWhatIsNotASize) {
  for (const char* text : {"", "GiB", "16gib", "16 G iB", "-1", "nan", "inf", "1e400", "16GiBx",
                           " 16", "+1", "0x10", "9.1e18", "8388608TiB"}) {
    SCOPED_TRACE(text);
    expect_error(
        Status::usage, [&] { parse_bytes(text, "device.memory-limit"); }, "device.memory-limit",
        text);
  }
}

TEST(ParseSeconds, ReadsUnits) {
  EXPECT_EQ(parse_seconds("90s", "x"), 90);
  EXPECT_EQ(parse_seconds("10min", "x"), 600);
  EXPECT_EQ(parse_seconds("1.5h", "x"), 5400);
  EXPECT_EQ(parse_seconds("2d", "x"), 172800);
  EXPECT_EQ(parse_seconds("250ms", "x"), 0.25);
}

TEST(ParseSeconds, ReadsTimesOfSlurm) {
  EXPECT_EQ(parse_seconds("1:00:00", "x"), 3600);
  EXPECT_EQ(parse_seconds("100:30:05", "x"), 361805);
  EXPECT_EQ(parse_seconds("90:05", "x"), 5405) << "minutes and seconds";
  EXPECT_EQ(parse_seconds("2-12", "x"), 216000) << "days and hours";
  EXPECT_EQ(parse_seconds("2-12:30", "x"), 217800);
  EXPECT_EQ(parse_seconds("1-00:00:01", "x"), 86401);
}

TEST(ParseSeconds, RefusesANumberWithoutUnit) {
  for (const char* text :
       {"90", "", "s", "-1s", "nans", "1m", "1 hour", "1:60", "1:99:00", "1:", ":30", "1:2:3:4",
        "1-24", "1-2:3:4:5", "1:-1", "1:1.5", "99999999999:00", "-1:00"}) {
    SCOPED_TRACE(text);
    expect_error(
        Status::usage, [&] { parse_seconds(text, "max-time"); }, "max-time");
  }
}

TEST(FormatBytes, ChoosesTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1610612736.0), "1.50 GiB");
}

TEST(FormatSeconds, ChoosesTheUnit) {
  EXPECT_EQ(format_seconds(0.254), "0.25 s");
  EXPECT_EQ(format_short_seconds(0.254), "0.25 s");
  EXPECT_EQ(format_short_seconds(0.00488), "4.88 ms");
  EXPECT_EQ(format_short_seconds(0), "0.00 s");
  EXPECT_EQ(format_seconds(75.2), "1 min 15 s");
  EXPECT_EQ(format_seconds(3600), "1 h 0 min");
  EXPECT_EQ(format_seconds(7380), "2 h 3 min");
}

TEST(FormatSeconds, OfTimesThatNobodyWaitsFor) {
  EXPECT_EQ(format_seconds(3.6e12), "1000000000 h 0 min");
  EXPECT_EQ(format_seconds(1e30), "2.78e+26 h");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "inf h");
}

TEST(ToInteger, StaysInItsRange) {
  using Limits = std::numeric_limits<std::int64_t>;
  EXPECT_EQ(to_integer(-2.7), -2);
  EXPECT_EQ(to_integer(0x1p62), std::int64_t{1} << 62);
  EXPECT_EQ(to_integer(-0x1p63), Limits::min());
  for (const double large : {0x1p63, 1e30, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(to_integer(large), Limits::max());
    EXPECT_EQ(to_integer(-large), Limits::min());
  }
  EXPECT_EQ(to_integer(std::numeric_limits<double>::quiet_NaN()), 0);
}

TEST(CheckedProduct, RefusesToOverflow) {
  constexpr std::int64_t max = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_product(3, 5, "x"), 15);
  EXPECT_EQ(checked_product(max, 1, "x"), max);
  EXPECT_EQ(checked_product(max, 0, "x"), 0);
  expect_error(
      Status::data, [] { checked_product(max, 2, "shape"); }, "shape");
  expect_error(Status::data,
               [] { checked_product(std::int64_t{1} << 32, std::int64_t{1} << 31, "shape"); });
  expect_error(Status::data, [] { checked_product(-1, 2, "shape"); });
  expect_error(Status::data, [] { checked_product(0, -1, "shape"); });
}

}  // namespace
}  // namespace reelmesh
