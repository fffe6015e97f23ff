#pragma once
#include <string>
#include <type_traits>

namespace reelmesh {

/// A shared library that is taken into the process when it is needed, and stays to its end.
class SharedLibrary {
 public:
  /// name: as users know it; file: what the loader looks for, such as "libm.so.6"; folder: where
  /// else it may be. Throws Error(unavailable) naming all three and what the loader says.
  SharedLibrary(std::string name, std::string file, const std::string& folder);

  /// One of its functions; F: its type. Throws Error(unavailable) where it has none of this name.
  template <class F>
  F* function(const char* symbol) const {
    static_assert(std::is_function_v<F>);
    return reinterpret_cast<F*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;

  std::string name_, file_;
  void* handle_;
};

}  // namespace reelmesh
