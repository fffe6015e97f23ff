#pragma once
// The reference data of tests/data/opensora (see its README), made by tools/reference.
#include <gtest/gtest.h>

#include "models/opensora/config.hpp"
#include "models/t5/t5.hpp"
#include "support/data_folder.hpp"
#include "support/random_tensor.hpp"
#include "weights/json.hpp"

namespace reelmesh::test {

struct OpenSoraReference {
  explicit OpenSoraReference(const std::string& kind)
      : folder(data_folder() / "opensora" / kind),
        results(Checkpoint::open(folder, "reference")),
        facts(parse_json(read_text(folder / "reference.json", 1 << 20), "reference.json")),
        transformer(STDiTConfig::read(Config::read(folder / "transformer" / "config.json"))),
        t5(T5Config::read(Config::read(folder / "text_encoder" / "config.json"))) {}

  /// A stored result as float32, in its stored shape.
  Tensor get(const std::string& name) const {
    return results.load(name, results.tensors().at(name).shape, DType::float32);
  }

  /// Entry `i` of the leading axis, without that axis.
  Tensor get(const std::string& name, std::int64_t i) const {
    const Tensor all = get(name);
    return all.rows(i, 1).reshape(Shape(all.shape().begin() + 1, all.shape().end()));
  }

  /// Embeddings of text `i` without those of padding: [token, channel].
  Tensor text(std::int64_t i) const {
    std::int64_t kept = 0;
    const Tensor mask = get("text.mask", i);
    for (const float one : mask.span<float>()) kept += std::int64_t(one);
    return get("text.embeddings", i).rows(0, kept);
  }

  std::filesystem::path folder;
  Checkpoint results;
  nlohmann::json facts;
  STDiTConfig transformer;
  T5Config t5;
};

/// The reference's [channel, frame, row, column] → [frame, channel, row, column].
inline Tensor frame_first(const Tensor& x) {
  const std::int64_t channels = x.shape(0), frames = x.shape(1);
  Tensor out = Tensor::empty({frames, channels, x.shape(2), x.shape(3)}, DType::float32);
  const std::int64_t pixels = x.shape(2) * x.shape(3);
  for (std::int64_t i = 0; i < channels * frames; ++i) {
    std::copy_n(x.data<float>() + i * pixels, pixels,
                out.data<float>() + (i % frames * channels + i / frames) * pixels);
  }
  return out;
}

/// The frames of x [frame, …] at the indices `frames`.
inline Tensor frames_at(const Tensor& x, const Tensor& frames) {
  Shape shape = x.shape();
  shape[0] = frames.numel();
  Tensor out = Tensor::empty(shape, DType::float32);
  for (std::int64_t i = 0; i < frames.numel(); ++i) {
    const Tensor from = x.rows(std::int64_t(frames.data<float>()[i]), 1);
    std::copy_n(from.data<float>(), from.numel(), out.rows(i, 1).data<float>());
  }
  return out;
}

}  // namespace reelmesh::test
