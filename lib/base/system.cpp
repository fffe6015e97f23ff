#include "base/system.hpp"

#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace reelmesh {
namespace {

/// The file of a loaded library, without symbolic links: "/usr/lib/…/libfmt.so.9.1.0".
std::string loaded_file(std::string_view library) {
  struct Search {
    std::string name, found;
  } search{std::string(library) + ".so", {}};
  const auto visit = [](dl_phdr_info* info, std::size_t, void* data) {
    auto& wanted = *static_cast<Search*>(data);
    const std::filesystem::path path(info->dlpi_name);
    if (path.filename().string().starts_with(wanted.name)) wanted.found = path;
    return wanted.found.empty() ? 0 : 1;
  };
  dl_iterate_phdr(visit, &search);
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(search.found, error);
  return error ? search.found : file.string();
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool means_no_such_file(int error) {
  return error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

std::int64_t max_open_files() {
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  return static_cast<std::int64_t>(
      std::min<rlim_t>(files.rlim_cur, std::numeric_limits<std::int32_t>::max()));
}

void raise_max_open_files() {
  constexpr rlim_t max = 1 << 20;
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= max) return;
  files.rlim_cur = std::min(files.rlim_max, max);
  ::setrlimit(RLIMIT_NOFILE, &files);
}

double process_age() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string text;
  std::getline(stat, text);
  double now = 0;
  // After the program's name in brackets, the start is the 20th value, in ticks since the boot.
  std::istringstream values(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string value;
  for (int i = 0; i < 20; ++i) values >> value;
  if (!(uptime >> now) || !values) return 0;
  return now - std::strtod(value.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string gpu_driver_version() {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos) {
      return word;
    }
  }
  return {};
}

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string loaded_version(std::string_view library) {
  const std::string file = loaded_file(library);
  const std::string_view end = ".so.";
  const std::size_t at = file.rfind(end);
  return at == std::string::npos ? "" : file.substr(at + end.size());
}

bool may_style(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(descriptor) != 0 && (no_color == nullptr || *no_color == '\0');
}

}  // namespace reelmesh
