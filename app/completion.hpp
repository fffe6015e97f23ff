#pragma once
#include <string>

#include "help.hpp"

namespace reelmesh::app {

/// Scripts that complete subcommands, options and their values, from the pages of --help.
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

/// `reelmesh completion bash`
HelpPage completion_help();

}  // namespace reelmesh::app
