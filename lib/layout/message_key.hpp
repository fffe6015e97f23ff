#pragma once
#include <cstdint>
#include <string>

namespace reelmesh {

/// What a message between two stages carries. It travels with the data, and the receiver compares
/// it with what it expects.
struct MessageKey {
  enum class Kind : std::int32_t {
    encoded_input,       ///< of a clip that begins from an image or video, to where embeddings wait
    image_rows,          ///< of the vision encoder, to where embeddings wait
    embeddings,          ///< of a clip's texts, to a denoising group
    input,               ///< the encoded input, to a denoising group
    input_rows,          ///< of the vision encoder, to a denoising group
    latents,             ///< to a decoding group
    written_embeddings,  ///< to a decoding group, which writes them
  };
  Kind kind = Kind::latents;
  std::int32_t clip = -1;      ///< index in the job
  std::int32_t sequence = -1;  ///< number of its batch, in the order in which batches are made
  friend bool operator==(const MessageKey&, const MessageKey&) = default;
  std::string text() const;  ///< "the latents of clip 3 (batch 1)"
};

}  // namespace reelmesh
