#pragma once
// Machine files: a machine's times as text, in the format of job files.
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "job/job.hpp"
#include "job/values.hpp"
#include "plan/machine_times.hpp"

namespace reelmesh {

/// All keys that a machine file may have, as "section.key".
std::vector<std::string> machine_keys();

/// The machine of these values, of which only operations may be repeated. file: for messages.
/// Error(usage) for a value that is no positive number, lacks some numbers or is given twice;
/// Error(data) for a file without rates, naming what is missing.
MachineTimes parse_machine(std::span<const Given> values, const std::string& file);

/// The contents of a machine file.
std::string to_text(const MachineTimes& machine);

/// The file itself, or for a name without a folder ("h100") the NAME.cfg in one of these folders.
/// Error(no_input) with the known names.
std::filesystem::path find_machine_file(const std::filesystem::path& given,
                                        const std::vector<std::filesystem::path>& folders);

/// Where a folder of the repository may be beside the running program: PREFIX/share/reelmesh/NAME,
/// or NAME beside its build folder.
std::vector<std::filesystem::path> shared_folders(const char* name);

/// Error(usage) without device.machine.
void require_machine(const Job& job);

}  // namespace reelmesh
