#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

/// The name of this host, for messages and results.
std::string host_name();

/// Whether this error of open() or stat() says that there is no such file, also because the system
/// takes no path like this one: it is too long, or leads through links in a circle.
bool means_no_such_file(int error);

/// The processor's name, as Linux gives it; empty if it gives none.
std::string processor_name();

/// The version of NVIDIA's kernel driver, such as "550.54.15"; empty if none is loaded.
std::string gpu_driver_version();

/// How many files and sockets this process may have open.
std::int64_t max_open_files();
/// Raises that to what the system lets this user have, but to no more than 1,048,576: programs that
/// this one starts may close all numbers up to the limit.
void raise_max_open_files();

/// Seconds since this process was started, to 0.01 s; 0 if Linux does not say.
double process_age();

/// The words with which this process was started.
std::vector<std::string> command_line();

/// The version in the file name of a shared library of this process: "9.1.0" for libfmt if
/// libfmt.so.9.1.0 is loaded; empty if it is not loaded or its name has none.
std::string loaded_version(std::string_view library);

/// Whether text written to this file descriptor may be styled with escape sequences: it is a
/// terminal, and NO_COLOR is not set (https://no-color.org).
bool may_style(int descriptor);

}  // namespace reelmesh
