#pragma once
// The reference data of tests/data/wan (see its README), made by tools/reference/make_wan_data.py.
#include <gtest/gtest.h>

#include "models/wan/config.hpp"
#include "support/data_folder.hpp"
#include "support/random_tensor.hpp"
#include "weights/json.hpp"

namespace reelmesh::test {

struct WanReference {
  explicit WanReference(const std::string& kind)
      : folder(data_folder() / "wan" / kind),
        results(Checkpoint::open(folder, "reference")),
        bfloat16_errors(parse_json(read_text(folder.parent_path() / "bf16_errors.json", 1 << 20),
                                   "bf16_errors.json")
                            .at(kind)),
        transformer(WanConfig::read(Config::read(folder / "transformer" / "config.json"))),
        vae(WanVaeConfig::read(Config::read(
            folder.parent_path() / (kind == "bfloat16" || kind == "ti2v" ? kind : "float32") /
            "vae/config.json"))),
        frame_0(kind == "ti2v") {}

  /// A stored result as float32, in its stored shape.
  Tensor get(const std::string& name) const {
    return results.load(name, results.tensors().at(name).shape, DType::float32);
  }
  /// Entry `i` of the leading axis, without that axis.
  Tensor get(const std::string& name, std::int64_t i) const {
    const Tensor all = get(name);
    return all.rows(i, 1).reshape(Shape(all.shape().begin() + 1, all.shape().end()));
  }
  /// The stored numbers 0 to 255 as uint8.
  Tensor bytes(const std::string& name) const {
    const Tensor numbers = get(name);
    Tensor out = Tensor::empty(numbers.shape(), DType::uint8);
    std::ranges::transform(numbers.span<float>(), out.data<std::uint8_t>(),
                           [](float number) { return std::uint8_t(number); });
    return out;
  }
  /// The root mean square error of PyTorch's bfloat16, relative to the largest value.
  double bfloat16_error(const std::string& name) const {
    return bfloat16_errors.at(name).at("rms").get<double>();
  }
  Checkpoint weights(const char* part) const {
    return Checkpoint::open(folder / part, "diffusion_pytorch_model");
  }

  std::filesystem::path folder;
  Checkpoint results;
  nlohmann::json bfloat16_errors;
  WanConfig transformer;
  WanVaeConfig vae;
  bool frame_0;  ///< the tokens of frame 0 had timestep 0
};

}  // namespace reelmesh::test
