#pragma once
// A machine whose times can be computed by hand.
#include "plan/machine_times.hpp"

namespace reelmesh::test {

inline constexpr double unlimited = 1e30;  // bytes/s

// A machine that computes at a constant rate: (FLOPs + 16 · bytes) per second.
inline MachineTimes constant_machine(double rate, const Link& link = {0, unlimited, 0}) {
  MachineTimes machine;
  machine.file = "node.cfg";
  machine.name = "a node";
  machine.cores = 64;
  machine.write = machine.disk = machine.touch = unlimited;
  machine.node = link;
  for (const char* kind : {"product", "attention", "convolution", "norm", "group_norm",
                           "group_sums", "copy", "attention_backward"}) {
    machine.alone[DType::float32].operations[kind] = {{16e6, 1e6, 32e6 / rate}};
  }
  machine.alone[DType::float32].load = machine.alone[DType::float32].load_convolutions = unlimited;
  return machine;
}

}  // namespace reelmesh::test
