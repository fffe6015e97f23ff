#pragma once
// Fibers: switching between stacks within one host thread.
#include <cstddef>
#include <memory>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace reelmesh::on_host {

/// A suspended point of execution on a stack.
struct StackPoint {
#ifdef __x86_64__
  void* pointer = nullptr;
#else
  ucontext_t context;
#endif
  // For AddressSanitizer: bounds of the stack, and its saved fake stack.
  const void* lowest = nullptr;
  std::size_t bytes = 0;
  void* kept = nullptr;
};

/// A new stack with a function that has not started. The function must call arrived() first and
/// must never return.
class Stack {
 public:
  Stack(std::size_t bytes, void (*function)());
  StackPoint point;

 private:
  std::unique_ptr<std::byte[]> memory_;
};

/// Suspends at `from` and resumes `to`. Returns when some fiber resumes `from`.
void go(StackPoint& from, StackPoint& to);
/// To be called at the beginning of a stack's function. caller: the point that switched to it, if
/// the bounds of its stack are not known yet and are to be filled in; otherwise null.
void arrived(StackPoint* caller);

}  // namespace reelmesh::on_host
