#pragma once
// Going from one stack to another within a thread of the process.
#include <cstddef>
#include <memory>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace reelmesh::on_host {

/// A place in the work of a stack, to come back to.
struct StackPlace {
#ifdef __x86_64__
  void* pointer = nullptr;
#else
  ucontext_t context;
#endif
  // For AddressSanitizer: the stack, and what it keeps about it.
  const void* lowest = nullptr;
  std::size_t bytes = 0;
  void* kept = nullptr;
};

/// A stack with a function that has not begun. It never returns, and calls arrived() first.
class Stack {
 public:
  Stack(std::size_t bytes, void (*function)());
  StackPlace place;

 private:
  std::unique_ptr<std::byte[]> memory_;
};

/// Goes to another place; comes back when someone goes to `from`.
void go(StackPlace& from, StackPlace& to);
/// At the beginning of a stack's function. caller: the place that it was gone to from, where
/// nothing is known yet of its stack; otherwise null.
void arrived(StackPlace* caller);

}  // namespace reelmesh::on_host
