#include "base/report.hpp"

#include <gtest/gtest.h>

namespace reelmesh {
namespace {

TEST(Table, AlignsColumns) {
  Table table({"stage", "seconds", "share"});
  table.row({"denoise", "12.5", "83 %"});
  table.row({"übersetze", "1.25"});
  EXPECT_EQ(table.str(),
            "stage      seconds  share\n"
            "-------------------------\n"
            "denoise       12.5   83 %\n"
            "übersetze     1.25\n");
}

TEST(Table, NeedsNoHeader) {
  Table table;
  table.row({"results", "demo/output"});
  table.row({"clips", "2"});
  EXPECT_EQ(table.str(), "results  demo/output\nclips              2\n");
}

}  // namespace
}  // namespace reelmesh
