// Layers of CogVideoX as the program runs them: launched one by one, and replayed as a CUDA graph.
// The time of a layer is half of what three layers take more than one.
#include <filesystem>

#include "bench/gpu_bench.hpp"
#include "comm/group.hpp"
#include "models/checkpoints/random_model.hpp"
#include "models/cogvideox/transformer.hpp"
#include "tensor/cuda/graph.hpp"

namespace reelmesh::bench {
namespace {

// A temporary folder for weights, removed by the destructor.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "bench_gpu_XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr, Status::cannot_create, "{}: cannot be made", name);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Times {
  double called = 0, replayed = 0;
};

// One call of a transformer with config().layers layers, for both branches of guidance.
Times time_call(const Bench& bench, const CogVideoXTransformer& transformer) {
  const CogVideoXConfig& c = transformer.config();
  const comm::Group world = comm::Group::world();
  const std::int64_t frames = bench.tiny() ? 2 : 13, rows = c.sample_height / c.patch.rows,
                     columns = c.sample_width / c.patch.columns;
  const Layout grid = Layout::replicated({frames, rows, columns}, 1);
  const Layout text = Layout::replicated({c.max_text_tokens}, 1);
  const CogVideoXPlacement placement(transformer, world, grid, text, 2);
  const std::vector<Tensor> latents{bench.random_tensor(
      {frames, c.in_channels, rows * c.patch.rows, columns * c.patch.columns}, DType::float32)};
  const Tensor context = bench.random_tensor({c.max_text_tokens, 2, c.text_channels});
  const Tensor sinusoid = transformer.embed(500);
  const auto call = [&] { transformer(placement, latents, context, sinusoid); };
  Times times;
  times.called = bench.call_seconds(call);
  const cuda::Graph graph(bench.device(), call);
  times.replayed = bench.call_seconds([&] { graph.replay(); });
  return times;
}

}  // namespace

void bench_layers(Bench& bench, const std::string& model) {
  const std::string name = model + "/layer";
  if (!bench.wanted(name)) return;
  bench.guarded(name, [&] {
    ModelPreset preset =
        model_preset(bench.tiny() ? (model == "2b" ? "tiny-cogvideox" : "tiny-cogvideox-rotary")
                                  : "cogvideox-" + model);
    nlohmann::json& transformer = preset.parts.at(ModelPart::transformer);
    const std::int64_t layers = transformer.at("num_layers");
    transformer["num_layers"] = 3;
    const Scratch folder;
    write_random_part(preset, ModelPart::transformer, bench.dtype(), 1, folder.path());
    CogVideoXConfig config =
        CogVideoXConfig::read(Config::parse(transformer.dump(), preset.name + "/transformer"));
    const auto load = [&] {
      const std::int64_t start = trace::now_ns();
      const std::int64_t before = device_memory(bench.device()).present;
      auto loaded = std::make_unique<const CogVideoXTransformer>(
          Checkpoint::open(folder.path() / "transformer", weights_stem(ModelPart::transformer))
              .on(bench.device()),
          config, bench.dtype());
      cuda::synchronize(bench.device());
      bench.row(fmt::format("{}/load_{}_layers_of_a_file", model, config.layers),
                static_cast<double>(trace::now_ns() - start) * 1e-9, 0,
                static_cast<double>(device_memory(bench.device()).present - before));
      return loaded;
    };
    const Times three = time_call(bench, *load());
    config.layers = 1;
    const Times one = time_call(bench, *load());

    const double d = double(config.channels()), batch = 2;
    const double tokens = double(config.max_text_tokens) + (bench.tiny() ? 2.0 : 13.0) *
                                                               double(config.sample_height / 2) *
                                                               double(config.sample_width / 2);
    const double flops = batch * tokens * (2 * 12 * d * d + 4 * tokens * d);
    const auto report = [&](const char* how, double of_one, double of_three) {
      const double layer = std::max((of_three - of_one) / 2, 1e-9);
      bench.row(fmt::format("{}_{}", name, how), layer, flops, 0);
      bench.row(fmt::format("{}/step_of_{}_layers_{}", model, layers, how),
                of_one + double(layers - 1) * layer, double(layers) * flops, 0);
    };
    report("called", one.called, three.called);
    report("replayed", one.replayed, three.replayed);
  });
}

}  // namespace reelmesh::bench
