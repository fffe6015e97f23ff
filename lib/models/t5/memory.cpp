#include "models/t5/memory.hpp"

#include <algorithm>

namespace reelmesh {

std::int64_t t5_weight_bytes(const T5Config& c, const T5Part& part, const Precision& precision) {
  const std::int64_t wider = size_of(t5_stream(precision.tensors)) - precision.size();
  return weight_bytes(t5_tensors(c, part), precision) +
         (part.last - part.first) * c.d_ff * c.d_model * wider;
}

std::int64_t t5_working_bytes(const T5Config& c, std::int64_t tokens, const Precision& precision) {
  const std::int64_t size = precision.size(), inner = c.num_heads * c.d_kv;
  const std::int64_t channel = tokens * size;  // bytes of one channel of all tokens
  const DType stream = t5_stream(precision.tensors);
  // The position bias of all heads, which is kept afterwards; the residual stream as passed in and
  // its working copy.
  std::int64_t held = c.num_heads * tokens * tokens * size_of(DType::float32) +
                      2 * tokens * c.d_model * size_of(stream);
  const std::int64_t attention =
      channel * (c.d_model + 3 * inner) +
      attention_bytes({tokens, tokens, c.num_heads, c.d_kv, true}, precision);
  // The normalised stream; gate, up and their product; the result.
  std::int64_t feed_forward = channel * (2 * c.d_model + 3 * c.d_ff);
  if (stream != precision.tensors) {  // what is added to the stream, in its type
    held += tokens * c.d_model * size_of(stream);
    feed_forward += tokens * c.d_ff * size_of(stream);
  }
  if (precision.converts()) feed_forward += tokens * c.d_ff * size_of(precision.products);
  return held + std::max(attention, feed_forward);
}

}  // namespace reelmesh
