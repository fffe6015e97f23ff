// Versions of cuDNN with wrong convolutions are not used for them.
#include "ops/cuda/convolution.hpp"

#include "base/error.hpp"
#include "emulated_gpu/device.hpp"

namespace reelmesh::emulated {
namespace {

bool refused(DType dtype) {
  try {
    gpu::require_right_convolutions(dtype);
    return false;
  } catch (const Error& error) {
    return error.status() == Status::unavailable;
  }
}

// Whether just 16-bit types are refused, and TF32 is used for convolutions over frames.
bool is(bool refused_16_bit, bool tf32) {
  Numerics numerics;
  if (gpu::allows_tf32(numerics, 3)) return false;
  numerics.tf32 = true;
  return refused(DType::bfloat16) == refused_16_bit && refused(DType::float16) == refused_16_bit &&
         !refused(DType::float32) && gpu::allows_tf32(numerics, 3) == tf32 &&
         gpu::allows_tf32(numerics, 1);
}

TEST(EmulatedCudnn, WrongConvolutionsAreNotUsed) {
  struct Row {
    const char* version;
    bool refused_16_bit, tf32;
  };
  for (const Row& row :
       {Row{"90701", false, true}, Row{"90800", true, true}, Row{"91001", true, true},
        Row{"91002", true, false}, Row{"91400", true, false}, Row{"91500", false, false},
        Row{"91501", false, false}, Row{"91600", false, true}}) {
    SCOPED_TRACE(row.version);
    EXPECT_WITH_SETTING("REELMESH_EMULATED_CUDNN", row.version, is(row.refused_16_bit, row.tf32));
  }
}

}  // namespace
}  // namespace reelmesh::emulated
