#include "base/system.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace reelmesh {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool may_style(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(descriptor) != 0 && (no_color == nullptr || *no_color == '\0');
}

}  // namespace reelmesh
