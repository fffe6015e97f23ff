// Machine files. A file that is accepted has times from which those of any operation follow, and is
// written with the same values.
#include "job/machine_file.hpp"

#include <cmath>

#include "fuzz/fuzz.hpp"
#include "given.hpp"

using namespace reelmesh;

namespace {

MachineTimes read(const std::filesystem::path& file, std::string_view text) {
  fuzz::write_file(file, text);
  static const std::vector<std::string> keys = machine_keys();
  return parse_machine(app::read_config(file, "device.machine", keys), "machine.cfg");
}

}  // namespace

FUZZ_TARGET(machine_file) {
  static const std::filesystem::path file = fuzz::make_folder() / "machine.cfg";
  fuzz::refusals_allowed([&] {
    const MachineTimes machine = read(file, fuzz::as_text(data, size));
    for (const auto& [dtype, times] : machine.alone) {
      for (const auto& [kind, known] : times.operations) {
        for (const double amount : {0.0, 1.0, 1e6, 1e18}) {
          const double seconds = machine.operation(kind, dtype, amount, 1e18 - amount, 4, 2);
          expect(std::isfinite(seconds) && seconds >= 0, "{} s of {}", seconds, kind);
        }
      }
      const double rate = machine.load(dtype, 4, true);
      expect(std::isfinite(rate) && rate > 0, "{} bytes/s", rate);
    }
    const std::string written = to_text(machine);
    std::string again;
    try {
      again = to_text(read(file, written));
    } catch (const Error& error) {
      expect(false, "what was written is refused: {}", error.what());
    }
    expect(again == written, "another machine is read than was written");
  });
  return 0;
}
