// metrics.h5: a row for each step and each validation, also of a training that goes on.
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

constexpr std::int64_t batch = 3;

SampleMetrics sample(std::int64_t step, std::int64_t place) {
  const auto number = static_cast<std::int32_t>(batch * step + place);
  return {.sample = number % 7, .timestep = 999 - number, .loss = 1.0 / (number + 2)};
}

std::vector<SampleMetrics> samples(std::int64_t step) {
  return {sample(step, 0), sample(step, 1), sample(step, 2)};
}

std::vector<double> validation(std::int64_t step) {
  const auto x = static_cast<double>(step);
  return {x, x / 3, x / 7, -x};
}

MetricsForm form() {
  return {
      .batch = batch, .timesteps = 500, .validation = {125, 375, 625, 875}, .clips = "four clips"};
}

// A training of `steps` steps from `done` on, with validations after every second one.
void add_steps(Metrics& metrics, std::int64_t done, std::int64_t steps) {
  for (std::int64_t step = done; step < steps; ++step) {
    if (step % 2 == 0 && !metrics.has_validation(step)) metrics.add_validation(validation(step));
    metrics.add(row(step), samples(step));
  }
}

class MetricsFile : public FolderTest {
 protected:
  /// The values of a dataset; empty if it has not all of them.
  template <class Value = double>
  std::vector<Value> values(const char* name, hid_t type = H5T_NATIVE_DOUBLE) const {
    const hdf5::File file = hdf5::open_if_valid(metrics_path(folder.path()));
    if (!file) return {};
    const auto shape = hdf5::dataset_shape(file.get(), name, type);
    if (!shape) return {};
    const bool whole = type != H5T_NATIVE_DOUBLE || shape->size() > 1;
    if (!(whole ? hdf5::holds_whole : hdf5::holds)(file.get(), name, type, *shape)) return {};
    const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), name);
    const std::string bytes = hdf5::read_box(dataset.get(), type, whole_box(*shape));
    std::vector<Value> found(bytes.size() / sizeof(Value));
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
    const auto numbers = values<std::int32_t>("sample", H5T_NATIVE_INT32);
    const auto timesteps = values<std::int32_t>("timestep", H5T_NATIVE_INT32);
    const auto losses = values("sample_loss");
    ASSERT_EQ(std::ssize(numbers), last * batch);
    ASSERT_EQ(std::ssize(timesteps), last * batch);
    ASSERT_EQ(std::ssize(losses), last * batch);
    for (std::int64_t i = first * batch; i < last * batch; ++i) {
      const SampleMetrics expected = sample(i / batch, i % batch);
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(numbers[at], expected.sample);
      EXPECT_EQ(timesteps[at], expected.timestep);
      EXPECT_EQ(losses[at], expected.loss);
    }
  }
  /// The validations are those after these steps, and there are no others.
  void expect_validations(const std::vector<std::int32_t>& steps) const {
    EXPECT_EQ(values<std::int32_t>("validation_step", H5T_NATIVE_INT32), steps);
    std::vector<double> expected;
    for (const std::int32_t step : steps) {
      const auto losses = validation(step);
      expected.insert(expected.end(), losses.begin(), losses.end());
    }
    EXPECT_EQ(values("validation_loss"), expected);
  }
};

TEST_F(MetricsFile, HasARowForEachStep) {
  on_rank_0([&] {
    Metrics metrics(folder.path(), form());
    metrics.add_validation(validation(0));
    metrics.write();
    EXPECT_FALSE(std::filesystem::exists(metrics_path(folder.path()))) << "there are no rows";
    add_steps(metrics, 0, 100);
    EXPECT_LT(std::ssize(values("loss")), 100) << "it is not written in each step";
    EXPECT_GE(std::ssize(values("loss")), 1);
    metrics.write();
    expect_rows(0, 100);
    EXPECT_EQ(values("validation_loss").size(), 50 * 4U);
    EXPECT_EQ(metrics.steps(), 100);
  });
  EXPECT_EQ(folder.listing(), "metrics.h5");
}

TEST_F(MetricsFile, GoesOnFromTheSavedStep) {
  on_rank_0([&] {
    {
      Metrics metrics(folder.path(), form());
      for (std::int64_t step = 0; step < 10; ++step) metrics.add({-1, -1, -1, -1}, samples(0));
      metrics = Metrics(folder.path(), form());  // starts again
      add_steps(metrics, 0, 10);
      metrics.write();
      expect_validations({0, 2, 4, 6, 8});
    }
    Metrics metrics(folder.path(), form(), 6);
    EXPECT_EQ(metrics.steps(), 6);
    EXPECT_TRUE(metrics.has_validation(6));
    EXPECT_FALSE(metrics.has_validation(8));
    metrics.write();
    expect_rows(0, 6);
    expect_validations({0, 2, 4, 6});
    add_steps(metrics, 6, 9);
    metrics.write();
    expect_rows(0, 9);
    expect_validations({0, 2, 4, 6, 8});
  });
}

TEST_F(MetricsFile, KeepsValidationsOfTheSameClips) {
  on_rank_0([&] {
    {
      Metrics metrics(folder.path(), form());
      add_steps(metrics, 0, 4);
      metrics.write();
    }
    {
      Metrics metrics(folder.path(), {.batch = batch}, 4);  // which does not validate
      metrics.write();
      expect_validations({0, 2});
    }
    MetricsForm other = form();
    other.clips = "five clips";
    Metrics metrics(folder.path(), other, 4);
    metrics.add_validation(validation(4));
    metrics.write();
    expect_rows(0, 4);
    expect_validations({4});
  });
}

TEST_F(MetricsFile, RowsThatAreLostAreNaN) {
  on_rank_0([&] {
    {
      Metrics metrics(folder.path(), form());
      add_steps(metrics, 0, 3);
      metrics.write();
    }
    {
      Metrics metrics(folder.path(), form(), 5);
      metrics.add(row(5), samples(5));
      metrics.write();
    }
    const auto loss = values("loss");
    ASSERT_EQ(loss.size(), 6U);
    EXPECT_EQ(loss[2], row(2).loss);
    EXPECT_TRUE(std::isnan(loss[3]));
    EXPECT_TRUE(std::isnan(loss[4]));
    EXPECT_EQ(loss[5], row(5).loss);
    EXPECT_TRUE(std::isnan(values("sample_loss").at(4 * batch)));
    EXPECT_EQ((values<std::int32_t>("sample", H5T_NATIVE_INT32).at(4 * batch)), -1);
    EXPECT_EQ((values<std::int32_t>("timestep", H5T_NATIVE_INT32).at(5 * batch)),
              sample(5, 0).timestep);
    expect_validations({0, 2});
    touch(metrics_path(folder.path()), "not HDF5");
    Metrics metrics(folder.path(), form(), 2);
    metrics.add(row(2), samples(2));
    metrics.write();
    EXPECT_TRUE(std::isnan(values("seconds").at(1)));
    expect_rows(2, 3);
  });
}

// Of an earlier version, which has nothing of samples; or one whose values have been changed.
TEST_F(MetricsFile, GoesOnWithoutWhatIsMissingOrDamaged) {
  on_rank_0([&] {
    for (const bool missing : {true, false}) {
      Metrics metrics(folder.path(), form());
      add_steps(metrics, 0, 4);
      metrics.write();
      {
        const hdf5::File file = hdf5::open_to_write(metrics_path(folder.path()));
        for (const char* name : {"timestep", "validation_loss"}) {
          if (missing) {
            ASSERT_GE(H5Ldelete(file.get(), name, H5P_DEFAULT), 0);
            continue;
          }
          const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), name);
          const std::vector<std::int64_t> zeros(batch * 4, 0);
          hdf5::write_all(dataset.get(), name[0] == 't' ? H5T_NATIVE_INT32 : H5T_NATIVE_DOUBLE,
                          zeros.data());
        }
      }
      Metrics later(folder.path(), form(), 4);
      EXPECT_FALSE(later.has_validation(2));
      later.add(row(4), samples(4));
      later.write();
      EXPECT_EQ(values("loss").at(3), row(3).loss);
      EXPECT_EQ(values("sample_loss").at(3 * batch), sample(3, 0).loss);
      const auto timesteps = values<std::int32_t>("timestep", H5T_NATIVE_INT32);
      EXPECT_EQ(timesteps.at(3 * batch), -1);
      EXPECT_EQ(timesteps.at(4 * batch), sample(4, 0).timestep);
    }
  });
}

TEST_F(MetricsFile, IsReadByXarray) {
  on_rank_0([&] {
    Metrics metrics(folder.path(), form());
    add_steps(metrics, 0, 3);
    metrics.write();
  });
  EXPECT_EQ(
      run_on_rank_0(world, "/usr/bin/python3 " REELMESH_SOURCE "/tests/store/read_metrics.py " +
                               metrics_path(folder.path()).string()),
      0);
}

TEST_F(MetricsFile, SaysThatItCannotBeWritten) {
  on_rank_0([&] {
    Metrics metrics(folder.path() / "none", form());
    EXPECT_EQ(status_of([&] { metrics.add(row(0), samples(0)); }), Status::cannot_create);
  });
}

}  // namespace
}  // namespace reelmesh
