#include "job/machine_file.hpp"

#include <gmock/gmock.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using testing::Contains, testing::HasSubstr, testing::Not;

// The "section.key" values of a file without errors, as app/config_file.cpp reads them.
std::vector<Given> values_of(const std::string& text) {
  std::vector<Given> values;
  std::istringstream lines(text);
  std::string section;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '[') {
      section = line.substr(1, line.size() - 2);
      continue;
    }
    const std::size_t equals = line.find(" = ");
    const std::string name = section + "." + line.substr(0, equals);
    values.push_back({name, line.substr(equals + 3), fmt::format("node.cfg:{}: {}", number, name)});
  }
  return values;
}

MachineTimes parsed(const std::string& text) { return parse_machine(values_of(text), "node.cfg"); }

DTypeTimes some_times(double seconds) {
  DTypeTimes times;
  for (const char* kind :
       {"product", "attention", "convolution", "norm", "group_norm", "group_sums", "copy"}) {
    times.operations[kind] = {{1e9, 2e6, seconds}, {4e9, 5e6, 3 * seconds}};
    seconds *= 2;
  }
  times.operations["copy"] = {{0, 2e6, seconds}, {4e9, 5e6, 3 * seconds}};
  times.load = 3e8;
  times.load_convolutions = 1e8;
  return times;
}

MachineTimes some_machine() {
  MachineTimes machine;
  machine.name = "node 1";
  machine.host = "n1";
  machine.processor = "A processor @ 2 GHz";
  machine.date = "2024-05-06";
  machine.source = "measured on 4 ranks with 2 threads each";
  machine.measured = true;
  machine.cores = 8;
  machine.threads = 2;
  machine.together = 4;
  machine.crowded = 1.25;
  machine.start = 0.5;
  machine.memory = std::int64_t{3} << 29;
  machine.multiprocessors = 108;
  machine.write = 1e7;
  machine.disk = 2e8;
  machine.touch = 3e9;
  machine.node = Link{1e-6, 5e9, 0.75};
  machine.host_memory = Link{0, 6e9, 0};
  machine.alone[DType::float32] = some_times(0.01);
  machine.alone[DType::bfloat16] = some_times(0.02);
  machine.alone[DType::bfloat16].operations["attention_backward"] = {{1e6, 2e6, 0.125}};
  machine.shared[DType::float32] = some_times(0.03);
  return machine;
}

void expect_equal(const Link& a, const Link& b) {
  EXPECT_EQ(a.latency, b.latency);
  EXPECT_EQ(a.bytes_per_s, b.bytes_per_s);
  EXPECT_EQ(a.share, b.share);
}

void expect_equal(const std::map<DType, DTypeTimes>& a, const std::map<DType, DTypeTimes>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [dtype, times] : a) {
    const DTypeTimes& others = b.at(dtype);
    EXPECT_EQ(times.load, others.load);
    EXPECT_EQ(times.load_convolutions, others.load_convolutions);
    ASSERT_EQ(times.operations.size(), others.operations.size());
    for (const auto& [kind, known] : times.operations) {
      const auto same = [](const TimedOperation& one, const TimedOperation& other) {
        return one.flops == other.flops && one.bytes == other.bytes && one.seconds == other.seconds;
      };
      EXPECT_TRUE(std::ranges::equal(known.known(), others.operations.at(kind).known(), same))
          << kind;
    }
  }
}

TEST(MachineFile, IsReadAsItWasWritten) {
  const MachineTimes machine = some_machine();
  const MachineTimes read = parsed(to_text(machine));
  EXPECT_EQ(read.file, "node.cfg");
  EXPECT_EQ(read.name, machine.name);
  EXPECT_EQ(read.host, machine.host);
  EXPECT_EQ(read.processor, machine.processor);
  EXPECT_EQ(read.date, machine.date);
  EXPECT_EQ(read.source, machine.source);
  EXPECT_TRUE(read.measured);
  EXPECT_FALSE(read.on_gpu);
  EXPECT_EQ(read.multiprocessors, 108);
  EXPECT_EQ(read.cores, 8);
  EXPECT_EQ(read.threads, 2);
  EXPECT_EQ(read.together, 4);
  EXPECT_EQ(read.crowded, 1.25);
  EXPECT_EQ(read.start, 0.5);
  EXPECT_EQ(read.memory, std::int64_t{3} << 29);
  EXPECT_EQ(read.write, 1e7);
  EXPECT_EQ(read.disk, 2e8);
  EXPECT_EQ(read.touch, 3e9);
  ASSERT_TRUE(read.node && read.host_memory);
  EXPECT_FALSE(read.network);
  expect_equal(*read.node, *machine.node);
  expect_equal(*read.host_memory, *machine.host_memory);
  expect_equal(read.alone, machine.alone);
  expect_equal(read.shared, machine.shared);
  EXPECT_EQ(to_text(read), to_text(machine));

  MachineTimes gpu = machine;
  gpu.on_gpu = true;
  gpu.measured = false;
  gpu.network = Link{1e-5, 1e9, 0.5};
  const MachineTimes again = parsed(to_text(gpu));
  EXPECT_TRUE(again.on_gpu);
  EXPECT_FALSE(again.measured);
  expect_equal(again.network.value(), *gpu.network);
}

TEST(MachineFile, HasOnlyKnownKeys) {
  const std::vector<std::string> keys = machine_keys();
  for (const Given& given : values_of(to_text(some_machine()))) {
    EXPECT_THAT(keys, Contains(given.name));
  }
  EXPECT_THAT(keys, Contains("float16-shared.attention_backward"));
  EXPECT_THAT(keys, Not(Contains("float32.speed")));
}

// The file with this line in place of the first that begins with `key`, in or after a section;
// without it if `line` is empty.
std::string changed(const std::string& section, const std::string& key, const std::string& line) {
  std::string text = to_text(some_machine());
  const std::size_t from = text.find("[" + section + "]");
  EXPECT_NE(from, std::string::npos) << section;
  const std::size_t begin = text.find("\n" + key + " = ", from) + 1;
  EXPECT_NE(begin, 0U) << key;
  const std::size_t end = text.find('\n', begin) + 1;
  return text.replace(begin, end - begin, line.empty() ? "" : line + "\n");
}

// Without all lines of a kind in one section.
std::string without(const std::string& section, const std::string& key) {
  std::string text = changed(section, key, "");
  const std::size_t begin = text.find("\n" + key + " = ", text.find("[" + section + "]")) + 1;
  return text.erase(begin, text.find('\n', begin) + 1 - begin);
}

template <class... Parts>
void expect_refused(Status status, const std::string& text, const Parts&... parts) {
  test::expect_error(
      status, [&] { parsed(text); }, "node.cfg", parts...);
}

TEST(MachineFile, RefusesNumbersThatAreNoTimes) {
  const auto refused = [](const char* section, const char* key, const char* value,
                          const auto&... parts) {
    SCOPED_TRACE(fmt::format("{}.{} = {}", section, key, value));
    expect_refused(Status::usage, changed(section, key, fmt::format("{} = {}", key, value)),
                   fmt::format(": {}.{}: ", section, key), parts...);
  };
  refused("float32", "product", "1e9 1e6 0", "1e9 1e6 0", "more than 0");
  refused("float32", "product", "1e9 1e6 -1", "-1");
  refused("float32", "product", "1e9 1e6 1e-300", "at least 1e-30");
  refused("float32", "product", "1e9 0 1", "more than 0");
  refused("float32", "product", "-1 1e6 1", "-1");
  refused("float32", "product", "1e9 1e6", "'1e9 1e6'", "expected FLOPs, bytes and seconds");
  refused("float32", "product", "1e9 1e6 1 1", "expected FLOPs, bytes and seconds");
  refused("float32", "product", "", "expected FLOPs, bytes and seconds");
  refused("float32", "product", "1e9 1e6 fast", "fast");
  refused("float32", "product", "1e9 1e6 inf", "inf");
  refused("float32", "product", "1e9 1e6 nan", "nan");
  refused("float32-shared", "copy", "1e9 1e6 0", "more than 0");
  refused("float32", "load", "0", "more than 0");
  refused("float32", "load", "1e9 1e9", "expected bytes/s");
  refused("float32", "load-convolutions", "-5", "-5");
  refused("machine", "write", "0", "more than 0");
  refused("machine", "disk", "0", "more than 0");
  refused("machine", "touch", "0", "more than 0");
  refused("machine", "start", "-1", "-1");
  refused("machine", "cores", "0", "0");
  refused("machine", "memory", "lots", "lots");
  refused("machine", "multiprocessors", "0", "0");
  refused("machine", "threads", "1.5", "1.5");
  refused("machine", "crowded", "0.5", "0.5");
  refused("machine", "measured", "perhaps", "perhaps");
  refused("link", "node", "1e-6 5e9 1.5", "share of 1.5", "0 to 1");
  refused("link", "node", "1e-6 5e9 -0.5", "-0.5");
  refused("link", "node", "1e-6 0 0", "more than 0");
  refused("link", "node", "1e-6 5e9", "expected seconds of a message, bytes/s, share");
}

TEST(MachineFile, RefusesFilesThatLackWhatIsNeeded) {
  expect_refused(Status::data, without("float32", "product"), "product is missing", "[float32]");
  expect_refused(Status::data, without("float32-shared", "group_sums"), "group_sums is missing",
                 "[float32-shared]");
  expect_refused(Status::data, changed("float32", "load", ""), "load is missing", "[float32]");
  expect_refused(Status::data, changed("bfloat16", "load-convolutions", ""),
                 "load-convolutions is missing", "[bfloat16]");
  for (const char* key : {"write", "disk", "touch"}) {
    expect_refused(Status::data, changed("machine", key, ""), std::string(key) + " is missing",
                   "[machine]");
  }
  const std::string text = to_text(some_machine());
  expect_refused(Status::data, text.substr(0, text.find("[float32]")), "no section [float32]",
                 "[bfloat16] or [float16]");
  MachineTimes machine = some_machine();
  machine.shared[DType::float16] = some_times(0.01);
  expect_refused(Status::data, to_text(machine), "section [float16] is missing",
                 "[float16-shared] needs");
  // Only trainings need it.
  EXPECT_FALSE(parsed(text).alone.at(DType::float32).operations.contains("attention_backward"));
}

TEST(MachineFile, RefusesValuesThatAreGivenTwice) {
  const auto refused = [](const char* section, const char* key, const char* value) {
    const std::string line = fmt::format("{} = {}", key, value);
    SCOPED_TRACE(line);
    expect_refused(Status::usage, changed(section, key, line + "\n" + line),
                   fmt::format(": {}.{}: ", section, key), "given twice");
  };
  refused("machine", "cores", "4");
  refused("machine", "name", "n");
  refused("link", "node", "0 1e9 0");
  refused("float32", "load", "1e9");
}

// The machines for users, and that of the tests.
std::vector<std::filesystem::path> shipped() {
  std::vector<std::filesystem::path> files{std::filesystem::path(REELMESH_TEST_DATA) /
                                           "machine.cfg"};
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(REELMESH_SOURCE) / "inputs/machines")) {
    files.push_back(entry.path());
  }
  return files;
}

MachineTimes read(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return parsed(text.str());
}

// More FLOPs or bytes never take less time, and ten times as many of both take more.
void expect_growing(const KnownOperations& known) {
  const double quarter = std::pow(10, 0.25);
  for (double flops = 1e3; flops < 1e16; flops *= quarter) {
    for (double bytes = 1e2; bytes < 1e12; bytes *= quarter) {
      const double seconds = known.seconds(flops, bytes);
      ASSERT_GT(seconds, 0);
      ASSERT_LE(known.seconds(0, bytes), seconds) << flops << " FLOPs, " << bytes << " bytes";
      ASSERT_LE(seconds, known.seconds(flops * quarter, bytes)) << flops << " FLOPs, " << bytes;
      ASSERT_LE(seconds, known.seconds(flops, bytes * quarter)) << flops << " FLOPs, " << bytes;
      ASSERT_LT(seconds, known.seconds(10 * flops, 10 * bytes)) << flops << " FLOPs, " << bytes;
    }
  }
}

TEST(MachineFile, TimesOfShippedMachinesGrowWithSizes) {
  ASSERT_GE(shipped().size(), 7U);
  for (const std::filesystem::path& file : shipped()) {
    const MachineTimes machine = read(file);
    EXPECT_TRUE(!machine.on_gpu || machine.memory > 0) << file;
    EXPECT_EQ(machine.on_gpu, machine.multiprocessors > 0) << file;
    for (const auto* sections : {&machine.alone, &machine.shared}) {
      for (const auto& [dtype, times] : *sections) {
        for (const auto& [kind, known] : times.operations) {
          SCOPED_TRACE(fmt::format("{}, {} of {}", file.string(), kind, name_of(dtype)));
          expect_growing(known);
          for (const TimedOperation& one : known.known()) {
            if (one.seconds < 1e-5) continue;  // equal ones of mere latency are pooled
            EXPECT_NEAR(known.seconds(one.flops, one.bytes), one.seconds, 0.12 * one.seconds)
                << one.flops << " FLOPs, " << one.bytes << " bytes";
          }
        }
      }
    }
  }
}

TEST(MachineFile, IsFoundByName) {
  const std::filesystem::path folder = std::filesystem::path(REELMESH_SOURCE) / "inputs/machines";
  const auto found = [&](const char* given) {
    return find_machine_file(given, {"no such folder", folder});
  };
  EXPECT_EQ(found("h100"), folder / "h100.cfg");
  EXPECT_EQ(found("./h100"), "./h100") << "a path is not a name";
  test::expect_error(
      Status::no_input, [&] { found("h1000"); }, "device.machine", "'h1000' not found", "a100",
      "t4");
}

}  // namespace
}  // namespace reelmesh
