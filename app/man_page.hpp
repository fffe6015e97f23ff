#pragma once
#include <string>

namespace reelmesh::app {

/// reelmesh(1) with the help of all subcommands, in the macros of man(7).
std::string man_page();

}  // namespace reelmesh::app
