#pragma once
#include <string>
#include <type_traits>

namespace reelmesh {

/// A shared library that is loaded at run time (dlopen) and never unloaded.
class SharedLibrary {
 public:
  /// name: for messages; file: what the loader looks for, such as "libm.so.6"; folder: where to
  /// look next. Throws Error(unavailable) with all three and the loader's message.
  SharedLibrary(std::string name, std::string file, const std::string& folder);

  /// The function `symbol`, of type F. Throws Error(unavailable) if the library does not have it.
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
