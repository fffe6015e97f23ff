#pragma once
// Errors of C libraries that must not return from their error handler.
#include <csetjmp>
#include <cstdio>

namespace reelmesh::media {

/// Calls functions of such a library; its error handler calls escape(), which jumps out of them.
class Escape {
 public:
  /// Whether f() returned without an error. f may only have locals without destructors, as they
  /// would be skipped.
  template <class F>
  bool attempt(F f) {
    if (setjmp(buffer_) != 0) return false;
    f();
    return true;
  }
  /// To be called within attempt() only.
  [[noreturn]] void escape(const char* reason) {
    std::snprintf(reason_, sizeof reason_, "%s", reason);
    std::longjmp(buffer_, 1);
  }
  const char* reason() const { return reason_; }

 private:
  std::jmp_buf buffer_;
  char reason_[256] = "";
};

}  // namespace reelmesh::media
