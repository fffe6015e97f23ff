// metrics.h5: a row for each step, also of a training that goes on.
#include "store/metrics.hpp"

#include <cmath>
#include <cstring>

#include "store/check.hpp"
#include "store_support.hpp"

namespace reelmesh {
namespace {

StepMetrics row(std::int64_t step) {
  const auto x = static_cast<double>(step);
  return {.loss = 1 / (x + 3), .gradient_norm = x, .learning_rate = 1e-4 * x, .seconds = x / 7};
}

class MetricsFile : public FolderTest {
 protected:
  /// The values of a dataset; empty if it has not all of them.
  std::vector<double> values(const char* name) const {
    const hdf5::File file = hdf5::open_if_valid(metrics_path(folder.path()));
    if (!file) return {};
    const auto shape = hdf5::dataset_shape(file.get(), name, H5T_NATIVE_DOUBLE);
    if (!shape || !hdf5::holds(file.get(), name, H5T_NATIVE_DOUBLE, *shape)) return {};
    const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), name);
    const std::string bytes = hdf5::read_box(dataset.get(), H5T_NATIVE_DOUBLE, whole_box(*shape));
    std::vector<double> found(bytes.size() / sizeof(double));
    std::memcpy(found.data(), bytes.data(), bytes.size());
    return found;
  }
  /// Rows [first, last) are those of row(), and there are no more.
  void expect_rows(std::int64_t first, std::int64_t last) const {
    const auto loss = values("loss"), norm = values("gradient_norm");
    const auto rate = values("learning_rate"), seconds = values("seconds");
    ASSERT_EQ(std::ssize(loss), last);
    ASSERT_EQ(std::ssize(norm), last);
    ASSERT_EQ(std::ssize(rate), last);
    ASSERT_EQ(std::ssize(seconds), last);
    for (std::int64_t i = first; i < last; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(loss[at], row(i).loss);
      EXPECT_EQ(norm[at], row(i).gradient_norm);
      EXPECT_EQ(rate[at], row(i).learning_rate);
      EXPECT_EQ(seconds[at], row(i).seconds);
    }
  }
};

TEST_F(MetricsFile, HasARowForEachStep) {
  on_rank_0([&] {
    Metrics metrics(folder.path());
    metrics.write();
    EXPECT_FALSE(std::filesystem::exists(metrics_path(folder.path()))) << "there are no rows";
    for (std::int64_t step = 0; step < 100; ++step) metrics.add(row(step));
    EXPECT_LT(std::ssize(values("loss")), 100) << "it is not written in each step";
    EXPECT_GE(std::ssize(values("loss")), 1);
    metrics.write();
    expect_rows(0, 100);
    EXPECT_EQ(metrics.steps(), 100);
  });
  EXPECT_EQ(folder.listing(), "metrics.h5");
}

TEST_F(MetricsFile, GoesOnFromTheSavedStep) {
  on_rank_0([&] {
    {
      Metrics metrics(folder.path());
      for (std::int64_t step = 0; step < 10; ++step) metrics.add({-1, -1, -1, -1});
      metrics = Metrics(folder.path());  // starts again
      for (std::int64_t step = 0; step < 10; ++step) metrics.add(row(step));
      metrics.write();
    }
    Metrics metrics(folder.path(), 7);
    EXPECT_EQ(metrics.steps(), 7);
    metrics.write();
    expect_rows(0, 7);
    for (std::int64_t step = 7; step < 9; ++step) metrics.add(row(step));
    metrics.write();
    expect_rows(0, 9);
  });
}

TEST_F(MetricsFile, RowsThatAreLostAreNaN) {
  on_rank_0([&] {
    {
      Metrics metrics(folder.path());
      for (std::int64_t step = 0; step < 3; ++step) metrics.add(row(step));
      metrics.write();
    }
    {
      Metrics metrics(folder.path(), 5);
      metrics.add(row(5));
      metrics.write();
    }
    const auto loss = values("loss");
    ASSERT_EQ(loss.size(), 6U);
    EXPECT_EQ(loss[2], row(2).loss);
    EXPECT_TRUE(std::isnan(loss[3]));
    EXPECT_TRUE(std::isnan(loss[4]));
    EXPECT_EQ(loss[5], row(5).loss);
    touch(metrics_path(folder.path()), "not HDF5");
    Metrics metrics(folder.path(), 2);
    metrics.add(row(2));
    metrics.write();
    EXPECT_TRUE(std::isnan(values("seconds").at(1)));
    expect_rows(2, 3);
  });
}

TEST_F(MetricsFile, IsReadByXarray) {
  on_rank_0([&] {
    Metrics metrics(folder.path());
    for (std::int64_t step = 0; step < 3; ++step) metrics.add(row(step));
    metrics.write();
  });
  EXPECT_EQ(
      run_on_rank_0(world, "/usr/bin/python3 " REELMESH_SOURCE "/tests/store/read_metrics.py " +
                               metrics_path(folder.path()).string()),
      0);
}

TEST_F(MetricsFile, SaysThatItCannotBeWritten) {
  on_rank_0([&] {
    Metrics metrics(folder.path() / "none");
    EXPECT_EQ(status_of([&] { metrics.add(row(0)); }), Status::cannot_create);
  });
}

}  // namespace
}  // namespace reelmesh
