# Sources of lib/ that ask whether the CUDA backend is built (cuda_built, tensor/dispatch.hpp). In
# builds without it they are a library of their own, which emulated GPUs compile again
# (reelmesh_room). The test house_order compares this list with the sources.
set(REELMESH_DEVICE_SOURCES
  comm/group.cpp
  layout/repeated_call.cpp
  layout/weight_stream.cpp
  ops/attention.cpp
  ops/attention_backward.cpp
  ops/convolution.cpp
  ops/folding.cpp
  ops/group_norm.cpp
  ops/linear.cpp
  ops/norm.cpp
  ops/norm_backward.cpp
  ops/pointwise.cpp
  ops/token_products.cpp
  sampler/guidance.cpp
  sampler/iddpm.cpp
  sampler/rectified_flow.cpp
  sampler/steps.cpp
  sampler/unipc.cpp
  tensor/device.cpp
  tensor/device_space.cpp
  tensor/float8.cpp
  tensor/gpus.cpp
  tensor/strided_copy.cpp
  tensor/tensor.cpp)
