// A job file: its lines, and the values of its options.
#include <array>

#include "fuzz/fuzz.hpp"
#include "options.hpp"
#include "plan/device_map.hpp"

using namespace reelmesh;

namespace {

// Relative paths in job files refer to this folder, which has no other files.
std::filesystem::path empty_current_folder() {
  std::filesystem::path folder = fuzz::make_folder();
  std::filesystem::current_path(folder);
  return folder;
}

}  // namespace

FUZZ_TARGET(job_file) {
  static const std::string path = empty_current_folder() / "job.cfg";
  fuzz::write_file(path, fuzz::as_text(data, size));
  const std::array arguments{"run", "--config", path.c_str()};
  fuzz::refusals_allowed([&] {
    const Job job = app::parse_run(arguments.size(), arguments.data());
    const std::string& map = job.parallel.device_map;
    if (map != "auto" && !map.ends_with(".json")) parse_device_map(map, 24, 4);
  });
  return 0;
}
