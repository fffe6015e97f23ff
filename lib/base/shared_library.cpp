#include "base/shared_library.hpp"

#include <dlfcn.h>

#include "base/error.hpp"

namespace reelmesh {

SharedLibrary::SharedLibrary(std::string name, std::string file, const std::string& folder)
    : name_(std::move(name)), file_(std::move(file)) {
  handle_ = ::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ != nullptr) return;
  const std::string why = ::dlerror();
  handle_ = ::dlopen(fmt::format("{}/{}", folder, file_).c_str(), RTLD_NOW | RTLD_LOCAL);
  require(handle_ != nullptr, Status::unavailable,
          "{} cannot be loaded: {} was looked for where the loader does (LD_LIBRARY_PATH, "
          "ld.so.conf) and in {}: {}",
          name_, file_, folder, why);
}

void* SharedLibrary::address(const char* symbol) const {
  void* found = ::dlsym(handle_, symbol);
  require(found != nullptr, Status::unavailable, "{} ({}) has no function {}", name_, file_,
          symbol);
  return found;
}

}  // namespace reelmesh
