#include "job/machine_file.hpp"

#include <fmt/format.h>

#include <array>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/span_names.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh {
namespace {

// Kinds of operations, as Ledger::note_operation, with a remark for the reader of a file.
struct Kind {
  const char* name;
  const char* remark;
};
constexpr std::array<Kind, 7> kinds{
    {{trace::spans::product.name, "matrix products"},
     {trace::spans::attention.name, "attention of tokens"},
     {trace::spans::convolution.name, "convolutions"},
     {trace::spans::norm.name, "norms of rows, with what is computed beside them"},
     {operation_kinds::group_norm, "norms of images"},
     {operation_kinds::group_sums, "sums for norms of images"},
     {operation_kinds::copy, "copies and sums"}}};
constexpr const char* backward = trace::spans::attention_backward.name;  // only trainings need it
constexpr std::array<DType, 3> dtypes{DType::float32, DType::bfloat16, DType::float16};
constexpr const char* shared_suffix = "-shared";

// Limits of numbers, so that rates and what follows from them are finite.
constexpr double smallest = 1e-30, most = 1e30;

std::vector<double> parse_numbers(const Given& given, std::size_t count, const char* expected) {
  std::vector<double> numbers;
  std::istringstream words(given.value);
  for (std::string word; words >> word;) {
    numbers.push_back(parse_number(word, given.where, 0, most));
  }
  require(numbers.size() == count, Status::usage, "{}: found '{}', expected {}", given.where,
          given.value, expected);
  return numbers;
}

double positive(double number, const Given& given) {
  require(number >= smallest, Status::usage, "{}: found '{}', expected more than 0, at least {}",
          given.where, given.value, smallest);
  return number;
}

Link parse_link(const Given& given) {
  const std::vector<double> n =
      parse_numbers(given, 3, "seconds of a message, bytes/s, share of a core");
  require(n[2] <= 1, Status::usage, "{}: found a share of {}, expected 0 to 1", given.where, n[2]);
  return {n[0], positive(n[1], given), n[2]};
}

TimedOperation parse_operation(const Given& given) {
  const std::vector<double> n = parse_numbers(given, 3, "FLOPs, bytes and seconds");
  return {n[0], positive(n[1], given), positive(n[2], given)};
}

int parse_count(const Given& given) {
  return static_cast<int>(parse_integer(given.value, given.where, 1, 65536));
}

// The section of a type, or null.
DTypeTimes* section(MachineTimes& machine, std::string_view name) {
  for (const DType dtype : dtypes) {
    if (name == name_of(dtype)) return &machine.alone[dtype];
    if (name == std::string(name_of(dtype)) + shared_suffix) return &machine.shared[dtype];
  }
  return nullptr;
}

void set_machine(MachineTimes& machine, std::string_view key, const Given& given) {
  if (key == "name") machine.name = given.value;
  if (key == "host") machine.host = given.value;
  if (key == "processor") machine.processor = given.value;
  if (key == "date") machine.date = given.value;
  if (key == "source") machine.source = given.value;
  if (key == "measured") machine.measured = parse_switch(given.value, given.where);
  if (key == "gpu") machine.on_gpu = parse_switch(given.value, given.where);
  if (key == "cores") machine.cores = parse_count(given);
  if (key == "threads") machine.threads = parse_count(given);
  if (key == "shared") machine.together = parse_count(given);
  if (key == "crowded") machine.crowded = parse_number(given.value, given.where, 1, 100);
  if (key == "start") machine.start = parse_numbers(given, 1, "seconds")[0];
  if (key == "write") machine.write = positive(parse_numbers(given, 1, "bytes/s")[0], given);
  if (key == "disk") machine.disk = positive(parse_numbers(given, 1, "bytes/s")[0], given);
  if (key == "touch") machine.touch = positive(parse_numbers(given, 1, "bytes/s")[0], given);
}

constexpr std::array<const char*, 15> machine_section{
    "name",    "host",   "processor", "date",  "source", "measured", "gpu",    "cores",
    "threads", "shared", "start",     "write", "touch",  "disk",     "crowded"};

void add_section(std::string& text, const std::string& name, const DTypeTimes& times) {
  text += fmt::format(
      "\n[{}]\n# bytes/s of weights, of linear layers and of convolutions\nload = {:.4g}\n"
      "load-convolutions = {:.4g}\n",
      name, times.load, times.load_convolutions);
  const auto add = [&](const char* kind, const char* remark) {
    const auto found = times.operations.find(std::string_view(kind));
    if (found == times.operations.end()) return;
    text += fmt::format("# {}\n", remark);
    for (const TimedOperation& one : found->second) {
      text += fmt::format("{} = {:.6g} {:.6g} {:.4g}\n", kind, one.flops, one.bytes, one.seconds);
    }
  };
  for (const Kind& kind : kinds) add(kind.name, kind.remark);
  add(backward, "gradients of attention");
}

}  // namespace

std::vector<std::string> machine_keys() {
  std::vector<std::string> keys;
  for (const char* key : machine_section) keys.push_back(fmt::format("machine.{}", key));
  for (const char* key : {"node", "network", "host"}) keys.push_back(fmt::format("link.{}", key));
  for (const DType dtype : dtypes) {
    for (const char* suffix : {"", shared_suffix}) {
      const std::string name = std::string(name_of(dtype)) + suffix;
      keys.push_back(name + ".load");
      keys.push_back(name + ".load-convolutions");
      for (const Kind& kind : kinds) keys.push_back(fmt::format("{}.{}", name, kind.name));
      keys.push_back(fmt::format("{}.{}", name, backward));
    }
  }
  return keys;
}

MachineTimes parse_machine(std::span<const Given> values, const std::string& file) {
  MachineTimes machine;
  machine.file = file;
  std::set<std::string_view> seen;
  const auto once = [&](const Given& given) {
    require(seen.insert(given.name).second, Status::usage, "{}: given twice, expected once",
            given.where);
  };
  for (const Given& given : values) {
    const std::string_view name = given.name;
    const std::size_t dot = name.find('.');
    const std::string_view of = name.substr(0, dot), key = name.substr(dot + 1);
    if (DTypeTimes* times = section(machine, of)) {
      if (key.starts_with("load")) once(given);
      if (key == "load") {
        times->load = positive(parse_numbers(given, 1, "bytes/s")[0], given);
      } else if (key == "load-convolutions") {
        times->load_convolutions = positive(parse_numbers(given, 1, "bytes/s")[0], given);
      } else {
        times->operations[std::string(key)].push_back(parse_operation(given));
      }
    } else if (of == "link") {
      once(given);
      (key == "node"      ? machine.node
       : key == "network" ? machine.network
                          : machine.host_memory) = parse_link(given);
    } else {
      once(given);
      set_machine(machine, key, given);
    }
  }
  require(!machine.alone.empty(), Status::data,
          "{}: no section [float32], [bfloat16] or [float16], expected the times of at least one",
          file);
  const auto check = [&](DType dtype, const DTypeTimes& times, const char* suffix) {
    const std::string name = std::string(name_of(dtype)) + suffix;
    for (const auto& [rate, key] :
         {std::pair{times.load, "load"}, {times.load_convolutions, "load-convolutions"}}) {
      require(rate > 0, Status::data, "{}: {} is missing in section [{}]", file, key, name);
    }
    for (const Kind& kind : kinds) {
      require(times.operations.contains(std::string_view(kind.name)), Status::data,
              "{}: {} is missing in section [{}], expected FLOPs, bytes and seconds of one or more "
              "operations",
              file, kind.name, name);
    }
  };
  for (const auto& [dtype, times] : machine.alone) check(dtype, times, "");
  for (const auto& [dtype, times] : machine.shared) {
    check(dtype, times, shared_suffix);
    require(machine.alone.contains(dtype), Status::data,
            "{}: section [{}] is missing, which [{}{}] needs", file, name_of(dtype), name_of(dtype),
            shared_suffix);
  }
  for (const auto& [rate, key] :
       {std::pair{machine.write, "write"}, {machine.touch, "touch"}, {machine.disk, "disk"}}) {
    require(rate > 0, Status::data, "{}: {} is missing in section [machine]", file, key);
  }
  return machine;
}

std::string to_text(const MachineTimes& machine) {
  std::string text =
      "# A machine for device.machine: times by which reelmesh predicts those of jobs.\n\n"
      "[machine]\n";
  const auto line = [&](const char* key, const auto& value) {
    text += fmt::format("{} = {}\n", key, value);
  };
  const auto rate = [&](const char* key, double value) { line(key, fmt::format("{:.4g}", value)); };
  line("name", machine.name);
  line("host", machine.host);
  line("processor", machine.processor);
  line("date", machine.date);
  line("source", machine.source);
  line("measured", machine.measured ? "yes" : "no");
  line("gpu", machine.on_gpu ? "yes" : "no");
  line("cores", machine.cores);
  line("threads", machine.threads);
  line("shared", machine.together);
  text += "# what more threads than cores lose beside their equal shares; 1: nothing\n";
  rate("crowded", machine.crowded);
  text += "# seconds of a job before it loads anything\n";
  rate("start", machine.start);
  text += "# bytes/s: weights from the disk, by a node; videos to it; memory that is used first\n";
  rate("disk", machine.disk);
  rate("write", machine.write);
  rate("touch", machine.touch);
  text +=
      "\n# Messages between two ranks of a node or of two nodes, and weights from the host's "
      "memory:\n"
      "# seconds of one without bytes, bytes/s, and the share of that time in which a rank cannot\n"
      "# compute.\n[link]\n";
  const auto add = [&](const char* name, const std::optional<Link>& link) {
    if (!link) return;
    text += fmt::format("{} = {:.3g} {:.4g} {:.3g}\n", name, link->latency, link->bytes_per_s,
                        link->share);
  };
  add("node", machine.node);
  add("network", machine.network);
  add("host", machine.host_memory);
  text +=
      "\n# FLOPs, bytes and seconds of operations of a rank, for tensors of one type: while the\n"
      "# other ranks of its node wait, and in sections with -shared while `shared` ranks "
      "compute.\n";
  for (const auto& [dtype, times] : machine.alone)
    add_section(text, std::string(name_of(dtype)), times);
  for (const auto& [dtype, times] : machine.shared) {
    add_section(text, std::string(name_of(dtype)) + shared_suffix, times);
  }
  return text;
}

}  // namespace reelmesh
