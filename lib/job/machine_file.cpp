#include "job/machine_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/span_names.hpp"
#include "base/units.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh {

namespace fs = std::filesystem;

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
constexpr std::array<DType, 3> timed_dtypes{DType::float32, DType::bfloat16, DType::float16};
constexpr const char* shared_suffix = "-shared";

// Limits of numbers, so that rates and what follows from them are finite.
constexpr double smallest = 1e-30, largest = 1e30;

std::vector<double> parse_numbers(const Given& given, std::size_t count, const char* expected) {
  std::vector<double> numbers;
  std::istringstream words(given.value);
  for (std::string word; words >> word;) {
    numbers.push_back(parse_number(word, given.where, 0, largest));
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
  for (const DType dtype : timed_dtypes) {
    if (name == name_of(dtype)) return &machine.alone[dtype];
    if (name == std::string(name_of(dtype)) + shared_suffix) return &machine.shared[dtype];
  }
  return nullptr;
}

double parse_rate(const Given& given) {
  return positive(parse_numbers(given, 1, "bytes/s")[0], given);
}

std::string yes_or_no(bool value) { return value ? "yes" : "no"; }
std::string number_text(double value) { return fmt::format("{:.4g}", value); }

// A key of section [machine].
struct MachineKey {
  const char* name;
  const char* remark;  // for the reader of a file, before the key; may be null
  void (*set)(MachineTimes& machine, const Given& given);
  std::string (*text)(const MachineTimes& machine);
};
template <std::string MachineTimes::*text>
constexpr MachineKey text_key(const char* name) {
  return {name, nullptr, [](MachineTimes& m, const Given& given) { m.*text = given.value; },
          [](const MachineTimes& m) { return m.*text; }};
}
template <bool MachineTimes::*flag>
constexpr MachineKey flag_key(const char* name) {
  return {
      name, nullptr,
      [](MachineTimes& m, const Given& given) { m.*flag = parse_switch(given.value, given.where); },
      [](const MachineTimes& m) { return yes_or_no(m.*flag); }};
}
template <int MachineTimes::*count>
constexpr MachineKey count_key(const char* name) {
  return {name, nullptr, [](MachineTimes& m, const Given& given) { m.*count = parse_count(given); },
          [](const MachineTimes& m) { return std::to_string(m.*count); }};
}
template <double MachineTimes::*rate>
constexpr MachineKey rate_key(const char* name, const char* remark = nullptr) {
  return {name, remark, [](MachineTimes& m, const Given& given) { m.*rate = parse_rate(given); },
          [](const MachineTimes& m) { return number_text(m.*rate); }};
}
constexpr std::array<MachineKey, 17> machine_section{
    {text_key<&MachineTimes::name>("name"),
     text_key<&MachineTimes::host>("host"),
     text_key<&MachineTimes::processor>("processor"),
     text_key<&MachineTimes::date>("date"),
     text_key<&MachineTimes::source>("source"),
     flag_key<&MachineTimes::measured>("measured"),
     flag_key<&MachineTimes::on_gpu>("gpu"),
     count_key<&MachineTimes::cores>("cores"),
     {"memory", "that a rank may use, if device.memory-limit is not given",
      [](MachineTimes& m, const Given& given) {
        m.memory = parse_bytes(given.value, given.where);
        require(m.memory > 0, Status::usage, "{}: found '{}', expected more than 0", given.where,
                given.value);
      },
      [](const MachineTimes& m) { return m.memory > 0 ? std::to_string(m.memory) : ""; }},
     {"multiprocessors", nullptr,
      [](MachineTimes& m, const Given& given) { m.multiprocessors = parse_count(given); },
      [](const MachineTimes& m) {
        return m.multiprocessors > 0 ? std::to_string(m.multiprocessors) : "";
      }},
     count_key<&MachineTimes::threads>("threads"),
     count_key<&MachineTimes::together>("shared"),
     {"crowded", "what more threads than cores lose beside their equal shares; 1: nothing",
      [](MachineTimes& m, const Given& given) {
        m.crowded = parse_number(given.value, given.where, 1, 100);
      },
      [](const MachineTimes& m) { return number_text(m.crowded); }},
     {"start", "seconds of a job before it loads anything",
      [](MachineTimes& m, const Given& given) { m.start = parse_numbers(given, 1, "seconds")[0]; },
      [](const MachineTimes& m) { return number_text(m.start); }},
     rate_key<&MachineTimes::disk>(
         "disk",
         "bytes/s: weights from the disk, by a node; videos to it; memory that is used first"),
     rate_key<&MachineTimes::write>("write"),
     rate_key<&MachineTimes::touch>("touch")}};

// Keys of section [link], and those of weights in the section of a type.
constexpr std::array<std::pair<const char*, std::optional<Link> MachineTimes::*>, 3> links{
    {{"node", &MachineTimes::node},
     {"network", &MachineTimes::network},
     {"host", &MachineTimes::host_memory}}};
constexpr std::array<std::pair<const char*, double DTypeTimes::*>, 2> loads{
    {{"load", &DTypeTimes::load}, {"load-convolutions", &DTypeTimes::load_convolutions}}};

void add_section(std::string& text, const std::string& name, const DTypeTimes& times) {
  text += fmt::format("\n[{}]\n# bytes/s of weights, of linear layers and of convolutions\n", name);
  for (const auto& [key, rate] : loads) {
    text += fmt::format("{} = {}\n", key, number_text(times.*rate));
  }
  const auto add = [&](const char* kind, const char* remark) {
    const auto found = times.operations.find(std::string_view(kind));
    if (found == times.operations.end()) return;
    text += fmt::format("# {}\n", remark);
    for (const TimedOperation& one : found->second.known()) {
      text += fmt::format("{} = {:.6g} {:.6g} {:.4g}\n", kind, one.flops, one.bytes, one.seconds);
    }
  };
  for (const Kind& kind : kinds) add(kind.name, kind.remark);
  add(backward, "gradients of attention");
}

}  // namespace

std::vector<std::string> machine_keys() {
  std::vector<std::string> keys;
  for (const MachineKey& key : machine_section) keys.push_back(fmt::format("machine.{}", key.name));
  for (const auto& [key, link] : links) keys.push_back(fmt::format("link.{}", key));
  for (const DType dtype : timed_dtypes) {
    for (const char* suffix : {"", shared_suffix}) {
      const std::string name = std::string(name_of(dtype)) + suffix;
      for (const auto& [key, rate] : loads) keys.push_back(fmt::format("{}.{}", name, key));
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
  std::map<std::pair<DTypeTimes*, std::string>, std::vector<TimedOperation>> operations;
  const auto once = [&](const Given& given) {
    require(seen.insert(given.name).second, Status::usage, "{}: given twice, expected once",
            given.where);
  };
  for (const Given& given : values) {
    const std::string_view name = given.name;
    const std::size_t dot = name.find('.');
    const std::string_view of = name.substr(0, dot), key = name.substr(dot + 1);
    const auto named = [&](const auto& entry) { return key == entry.first; };
    DTypeTimes* const times = section(machine, of);
    const auto load = std::ranges::find_if(loads, named);
    if (times != nullptr && load == loads.end()) {
      operations[{times, std::string(key)}].push_back(parse_operation(given));
      continue;
    }
    once(given);
    if (times != nullptr) {
      times->*load->second = parse_rate(given);
    } else if (of == "link") {
      machine.*std::ranges::find_if(links, named)->second = parse_link(given);
    } else {
      std::ranges::find(machine_section, key, [](const MachineKey& one) {
        return std::string_view(one.name);
      })->set(machine, given);
    }
  }
  for (auto& [of_kind, known] : operations) {
    of_kind.first->operations[of_kind.second] = std::move(known);
  }
  require(!machine.alone.empty(), Status::data,
          "{}: no section [float32], [bfloat16] or [float16], expected the times of at least one",
          file);
  const auto check = [&](DType dtype, const DTypeTimes& times, const char* suffix) {
    const std::string name = std::string(name_of(dtype)) + suffix;
    for (const auto& [key, rate] : loads) {
      require(times.*rate > 0, Status::data, "{}: {} is missing in section [{}]", file, key, name);
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
  for (const MachineKey& key : machine_section) {
    const std::string value = key.text(machine);
    if (value.empty()) continue;
    if (key.remark != nullptr) text += fmt::format("# {}\n", key.remark);
    text += fmt::format("{} = {}\n", key.name, value);
  }
  text +=
      "\n# Messages between two ranks of a node or of two nodes, and weights from the host's "
      "memory:\n"
      "# seconds of one without bytes, bytes/s, and the share of that time in which a rank cannot\n"
      "# compute.\n[link]\n";
  for (const auto& [key, member] : links) {
    const std::optional<Link>& link = machine.*member;
    if (!link) continue;
    text += fmt::format("{} = {:.3g} {:.4g} {:.3g}\n", key, link->latency, link->bytes_per_s,
                        link->share);
  }
  text +=
      "\n# FLOPs, bytes and seconds of operations of a rank, for tensors of one type: while the\n"
      "# other ranks of its node wait, and in sections with -shared while `shared` ranks "
      "compute.\n";
  for (const auto& [dtype, times] : machine.alone) {
    add_section(text, std::string(name_of(dtype)), times);
  }
  for (const auto& [dtype, times] : machine.shared) {
    add_section(text, std::string(name_of(dtype)) + shared_suffix, times);
  }
  return text;
}

std::vector<fs::path> shared_folders(const char* name) {
  std::error_code ignored;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  return {prefix / "share/reelmesh" / name, prefix / name};
}

fs::path find_machine_file(const fs::path& given, const std::vector<fs::path>& folders) {
  std::error_code ignored;
  if (given.has_parent_path() || fs::exists(given, ignored)) return given;
  std::set<std::string> names;
  for (const fs::path& folder : folders) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() != ".cfg") continue;
      if (entry.path().stem() == given) return entry.path();
      names.insert(entry.path().stem().string());
    }
  }
  fail(Status::no_input, "device.machine: file '{}' not found, expected a machine file{}{}",
       given.string(), names.empty() ? "" : " or one of ", fmt::join(names, ", "));
}

void require_machine(const Job& job) {
  require(job.machine != nullptr, Status::usage,
          "device.machine is missing, expected a machine file, as plan calibrate writes one: "
          "plans are compared by their times");
}

}  // namespace reelmesh
