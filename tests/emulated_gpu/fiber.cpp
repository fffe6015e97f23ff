#include "emulated_gpu/fiber.hpp"

#include <cstdint>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __x86_64__
// Pushes the callee-saved registers, stores the stack pointer in *from and switches to stack `to`.
// Unlike swapcontext it makes no system call; unlike longjmp it ends in a `ret`, mostly to the same
// call site, which the processor predicts.
extern "C" void reelmesh_go(void** from, void* to);
asm(R"(
  .text
  .type reelmesh_go, @function
reelmesh_go:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
  .size reelmesh_go, . - reelmesh_go
)");
#endif

namespace reelmesh::on_host {

Stack::Stack(std::size_t bytes, void (*function)())
    : memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {
  point.lowest = memory_.get();
  point.bytes = bytes;
#ifdef __x86_64__
  // The stack as reelmesh_go leaves it: six registers, its return address (the function), and the
  // return address of the function (null: it never returns).
  std::byte* top = memory_.get() + bytes;
  top -= reinterpret_cast<std::uintptr_t>(top) % 16;
  constexpr std::size_t kept = 8 * sizeof(void*);
  std::memset(top - kept, 0, kept);
  std::memcpy(top - 2 * sizeof(void*), &function, sizeof(function));
  point.pointer = top - kept;
#else
  getcontext(&point.context);
  point.context.uc_stack.ss_sp = memory_.get();
  point.context.uc_stack.ss_size = bytes;
  point.context.uc_link = nullptr;
  makecontext(&point.context, function, 0);
#endif
}

void go(StackPoint& from, StackPoint& to) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.kept, to.lowest, to.bytes);
#endif
#ifdef __x86_64__
  reelmesh_go(&from.pointer, to.pointer);
#else
  swapcontext(&from.context, &to.context);
#endif
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(from.kept, nullptr, nullptr);
#endif
}

void arrived([[maybe_unused]] StackPoint* caller) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, caller ? &caller->lowest : nullptr,
                                  caller ? &caller->bytes : nullptr);
#endif
}

}  // namespace reelmesh::on_host
