#include "pipeline/layouts/toy_family.hpp"

#include <cmath>
#include <fstream>

#include "layout/attend.hpp"
#include "models/common/asked.hpp"
#include "models/common/channels_last.hpp"
#include "models/common/random_weights.hpp"
#include "models/common/residual.hpp"
#include "models/common/trained_model.hpp"
#include "ops/norm.hpp"
#include "ops/rows.hpp"
#include "plan/denoise.hpp"
#include "sampler/flow_samplers.hpp"
#include "sampler/rectified_flow.hpp"
#include "sampler/sampler_rows.hpp"
#include "weights/config.hpp"
#include "weights/writer.hpp"

namespace reelmesh::test {
namespace {

constexpr std::int64_t channels = 4, heads = 3, head_channels = 8, width = heads * head_channels;
constexpr std::int64_t pixels = 4;  // pixels per latent, along each side
const ops::Patch patch{1, 2, 2};

// Of a layer of the decoder.
ops::Linear product(const char* name, std::int64_t in, std::int64_t out, DType dtype,
                    Device device) {
  Tensor weight = Tensor::empty({out, in}, dtype, device);
  if (!device.only_shapes) fill_random(weight, name, 1, {0, 1.0F / std::sqrt(float(in))});
  return ops::Linear(weight);
}

class ToyDenoiser;

// Clips of one size on a group.
struct ToyPlacement {
  ToyPlacement(const ToyDenoiser& model, const DenoiseTask& task);

  std::int64_t branches;
  Attend attend;
  TokenColumns tokens;
};

// One block: a norm modulated by the time, self-attention of the video's tokens over a mesh, then
// cross-attention to the text, which each rank has whole.
class ToyDenoiser final : public TrainableDenoiser {
 public:
  ToyDenoiser(const Checkpoint& weights, std::int64_t text_channels, DType dtype,
              const WeightPlacement& placement = {}, ModelTraining* training = nullptr)
      : text_channels_(text_channels), dtype_(dtype), device_(weights.device()) {
    using Residing = LayerMaker::Residing;
    LayerMaker make(weights, dtype, placement, training);
    const auto block = [&](const std::vector<std::string>& names) {
      return make.linear(names, width, width, {.takes_lora = true});
    };
    text_ = make.linear({"text"}, text_channels, 2 * width, {.residing = Residing::beside});
    in_ = make.linear({"in"}, 4 * channels, width, {.residing = Residing::kept});
    time_ = make.linear({"time"}, 1, 2 * width, {.residing = Residing::kept});
    norm_ = make.norm("norm", width);
    query_ = block({"query"});
    key_value_ = block({"key", "value"});
    to_text_ = block({"to_text"});
    out_ = make.linear({"out"}, width, 4 * channels, {.residing = Residing::kept});
    make.finish();
  }

  DType dtype() const { return dtype_; }
  Device device() const override { return device_; }
  Tensor embed(double timestep) const override {
    Tensor time = Tensor::zeros({1, 1}, DType::float32, device_.host());
    if (!device_.only_shapes) time.data<float>()[0] = static_cast<float>(timestep / 1000);
    return time.to(dtype_).on(device_);
  }
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task,
                                    std::span<const Conditioning> conditioning) const override {
    return std::make_unique<OnRanks>(*this, task, conditioning);
  }
  std::unique_ptr<const Clip> prepare_training(const DenoiseTask& task) const override {
    return std::make_unique<TrainingClip>(*this, task);
  }
  Tensor predict_together(const Clip& clip, const TrainingSample& sample) const override {
    const ToyPlacement& on = dynamic_cast<const TrainingClip&>(clip).placement;
    const Tape::Rows rows(on.tokens);
    Tensor no_residual;
    const Tensor all = features(on, sample.latents, keys_values(sample.text),
                                embed(sample.timestep), Blocks::compute, no_residual);
    return ops::unpatchify(all, 0, patch, sample.latents.shape());
  }
  Example example(Device host) const override {
    DenoiseTask task{.group = comm::Group::pretended(0, 1), .latents = {1, 2, 2}};
    task.layout.mesh = {1, 1, 1};
    task.layout.tokens = Layout::replicated({1, 1, 1}, 1);
    const Tensor latents = Tensor::zeros({1, channels, 2, 2}, DType::float32, host);
    return {task,
            {.latents = latents,
             .target = latents,
             .text = Tensor::zeros({1, 1, text_channels_}, dtype_, host)}};
  }

 private:
  struct TrainingClip final : Clip {
    TrainingClip(const ToyDenoiser& model, const DenoiseTask& task) : placement(model, task) {}
    const TokenColumns& columns() const override { return placement.tokens; }

    ToyPlacement placement;
  };

  class OnRanks final : public Prepared {
   public:
    OnRanks(const ToyDenoiser& model, const DenoiseTask& task,
            std::span<const Conditioning> conditioning)
        : model_(model), on_(model, task) {
      for (const Conditioning& clip : conditioning) {
        texts_.push_back(model.keys_values(clip.text));
        images_.push_back(clip.image);
        Tensor& residual = residuals_.emplace_back();
        if (!task.keeps_residual) continue;
        const std::int64_t tokens = own_box(task.layout.tokens, task.group).numel();
        residual = Tensor::zeros({tokens, on_.branches, width}, model.dtype_, model.device_);
      }
    }

    std::vector<Tensor> predict_together(std::span<const Tensor> latents, const Tensor& time,
                                         Blocks blocks) override {
      std::vector<Tensor> all;
      for (std::size_t clip = 0; clip < latents.size(); ++clip) {
        const Tensor seen = images_[clip].empty() ? latents[clip] : latents[clip].clone();
        add(images_[clip], seen);
        const Tensor features =
            model_.features(on_, seen, texts_[clip], time, blocks, residuals_[clip]);
        for (std::int64_t branch = 0; branch < on_.branches; ++branch) {
          all.push_back(ops::unpatchify(features, branch, patch, latents[clip].shape()));
        }
      }
      return all;
    }
    Tensor residual(std::int64_t clip) const override {
      return residuals_[static_cast<std::size_t>(clip)].to(DType::float32);
    }
    void set_residual(std::int64_t clip, const Tensor& values) override {
      residuals_[static_cast<std::size_t>(clip)] = values.to(model_.dtype_).clone();
    }

   private:
    static void add(const Tensor& image, Tensor x) {
      for (std::int64_t i = 0; i < image.numel() && !x.device().only_shapes; ++i) {
        x.data<float>()[i] += image.data<float>()[i];
      }
    }

    const ToyDenoiser& model_;
    ToyPlacement on_;
    std::vector<Tensor> texts_, images_, residuals_;
  };

  // Of a text [token, branch, channel].
  Tensor keys_values(const Tensor& text) const {
    return text_.of_whole(text).reshape({text.shape(0), text.shape(1), 2, heads, head_channels});
  }

  // → [token, branch, feature].
  Tensor features(const ToyPlacement& on, const Tensor& latents, const Tensor& text,
                  const Tensor& time, Blocks blocks, Tensor& residual) const {
    const Tape::Rows rows(on.tokens);
    const Tensor table = ops::shared_by_tokens(time_.of_row(time));
    const Tensor video = in_(ops::patchify(latents, patch, dtype_));
    Tensor x = Tensor::empty({video.shape(0), on.branches, width}, dtype_, device_);
    ops::repeat_for_batch(video, x);
    before_blocks(blocks, x, residual);
    if (blocks != Blocks::reuse) {
      x = checkpoint(0, std::move(x), [this, &on, text, table](Tensor in) {
        return run_block(on, text, table, std::move(in));
      });
    }
    after_blocks(blocks, x, residual);
    return out_(x);
  }

  Tensor run_block(const ToyPlacement& on, const Tensor& text, const Tensor& table,
                   Tensor x) const {
    const Tape::Rows rows(on.tokens);
    const std::int64_t tokens = x.shape(0);
    const auto split = [&](const Tensor& from) {
      return from.reshape({tokens, on.branches, heads, head_channels});
    };
    Tensor normed = Tensor::empty(x.shape(), dtype_, device_);
    ops::modulated_layer_norm(x, norm_.weight, norm_.bias, 1e-5F, {table, 0, 1}, normed);
    const Tensor own = on.attend(
        split(query_(normed)),
        [&] {
          return key_value_(normed).reshape({tokens, on.branches, 2, heads, head_channels});
        },
        0.3F);
    ops::add(x, own.reshape(x.shape()));
    const Tensor to_text = attend_to_whole_together(on.tokens, split(to_text_(x)), text, 0.3F, {});
    ops::add(x, to_text.reshape(x.shape()));
    return x;
  }

  std::int64_t text_channels_;
  DType dtype_;
  Device device_;
  LinearLayer text_, in_, time_, query_, key_value_, to_text_, out_;
  Affine norm_;
};

ToyPlacement::ToyPlacement(const ToyDenoiser& model, const DenoiseTask& task)
    : branches(task.branches),
      attend(task.group, {task.layout.tokens},
             {task.branches, heads, head_channels, task.layout.mesh.ring}, model.dtype(),
             model.device()),
      tokens(task.group, {task.layout.tokens}, head_channels) {}

// Nearest-neighbour decoder: each latent becomes pixels × pixels equal pixels.
class ToyDecoder final : public Decoder {
 public:
  ToyDecoder(DType dtype, Device device)
      : dtype_(dtype), colours_(product("rgb", channels, 3, dtype, device)) {}

  DecodedVideo pixels(const Sharded& latents, const DecodeLayout& layout) const override {
    const Layout cut =
        layout.images.scaled(1, test::pixels).scaled(2, test::pixels).with_axis(3, 3);
    Sharded video{
        Tensor::empty(own_box(cut, latents.group).extent, DType::uint8, latents.local.device()),
        cut, latents.group};
    if (video.local.empty()) return {video};
    const Tensor rgb =
        ops::to_pixels(colours_(channels_last(latents.local, 1.0F, dtype_)));  // one per latent
    const Shape& shape = video.local.shape();
    if (video.local.device().only_shapes) return {video};
    for (std::int64_t i = 0; i < video.local.numel(); ++i) {
      const std::int64_t colour = i % 3, column = i / 3 % shape[2], row = i / 3 / shape[2];
      const std::int64_t from = row % shape[1] / test::pixels + row / shape[1] * rgb.shape(1);
      video.local.data<std::uint8_t>()[i] =
          rgb.data<std::uint8_t>()[(from * rgb.shape(2) + column / test::pixels) * 3 + colour];
    }
    return {video};
  }

 private:
  DType dtype_;
  ops::Linear colours_;
};

// A latent is the mean of a colour over its pixels, with a tenth of the noise.
class ToyEncoder final : public Encoder {
 public:
  Tensor sample(const Sharded& images, const Layout& latents, double scale,
                const DrawNoise& noise) const override {
    const Shape& box = own_box(latents, images.group).extent;
    Tensor encoded =
        Tensor::empty({box[0], channels, box[1], box[2]}, DType::float32, images.local.device());
    if (encoded.device().only_shapes) return encoded;
    noise(encoded.span<float>());
    const auto* bytes = images.local.data<std::uint8_t>();
    const std::int64_t columns = box[2] * test::pixels;
    for (std::int64_t i = 0; i < encoded.numel(); ++i) {
      const std::int64_t column = i % box[2], row = i / box[2] % box[1];
      const std::int64_t colour = i / box[2] / box[1] % channels % 3;
      const std::int64_t frame = i / box[2] / box[1] / channels;
      int sum = 0;
      for (std::int64_t y = 0; y < test::pixels; ++y) {
        for (std::int64_t x = 0; x < test::pixels; ++x) {
          const std::int64_t from = (frame * box[1] + row) * test::pixels + y;
          sum += bytes[(from * columns + column * test::pixels + x) * 3 + colour];
        }
      }
      float& value = encoded.data<float>()[i];
      value = float(scale) * (0.01F * float(sum) + 0.1F * value);
    }
    return encoded;
  }
};

class Toy final : public Family {
 public:
  explicit Toy(const ModelPaths& paths)
      : paths_(paths), t5_(T5Config::read(Config::read(paths.text_encoder / "config.json"))) {}

  const char* name() const override { return "toy"; }
  const ModelPaths& paths() const override { return paths_; }
  // All models have the same weights; the decoder has no file.
  std::string weights_hash(const comm::Group&) const override { return "toy"; }
  Checkpoint open(ModelPart part) const override {
    return part == ModelPart::vae ? Checkpoint::of_shapes() : Family::open(part);
  }
  const T5Config& text_encoder() const override { return t5_; }
  ClipWorkload workload(const Clip& clip, std::int64_t text_tokens) const override {
    ClipWorkload workload;
    workload.denoise.latents = clip.latents;
    workload.denoise.text_tokens = text_tokens;
    workload.denoise.branches = clip.format.branches;
    workload.denoise.heads = heads;
    workload.denoise.head_channels = head_channels;
    workload.denoise.layouts = LayoutKind::mesh_whole_text;
    // Inputs are cut by rows and columns only, as the decoded video then is.
    const std::int64_t group = clip.input ? clip.latents[0] : 1;
    workload.decode = {clip.latents, clip.latents[0], group, group, false};
    return workload;
  }
  std::vector<std::int64_t> share(const DenoiseLayout&, int rank) const override { return {rank}; }
  std::int64_t layers() const override { return 1; }
  std::unique_ptr<const Denoiser> denoiser(const OpenPart& open, DType dtype,
                                           const WeightPlacement& placement,
                                           std::int64_t) const override {
    return std::make_unique<ToyDenoiser>(open(ModelPart::transformer), t5_.d_model, dtype,
                                         placement);
  }
  std::unique_ptr<Trainable> trainable(const Checkpoint& weights, DType dtype,
                                       const WeightPlacement& placement,
                                       const TrainingMode& mode) const override {
    return in_training<ToyDenoiser>(weights, t5_.d_model, dtype, placement, mode);
  }
  std::unique_ptr<const Decoder> decoder(const Checkpoint& weights, DType dtype) const override {
    return std::make_unique<ToyDecoder>(dtype, weights.device());
  }
  std::unique_ptr<const Encoder> encoder(const Checkpoint&, DType) const override {
    return std::make_unique<ToyEncoder>();
  }

 private:
  bool takes(InputKind) const override { return true; }
  bool takes_flow_shift() const override { return true; }
  ClipDefaults defaults() const override { return {{40, 24, 5}, 8, 3, 4}; }
  void complete(Clip& clip, const Job& job, const ClipRequest& request,
                const Tokenizer& tokenizer) const override {
    const VideoSize& size = clip.format.size;
    clip.latents = {size.frames, size.height / pixels, size.width / pixels};
    clip.latent_channels = channels;
    clip.video = {size.frames, size.height, size.width};
    clip.record.scheduler = "RectifiedFlow";
    clip.record.token_ids = encode_prompt(tokenizer, request, request.prompt, 12, clip).ids;
    if (clip.guidance() > 1) {
      clip.texts.push_back(encode_text(tokenizer, "", 12, clip, "negative prompt").ids);
    }
    clip.texts.push_back(clip.record.token_ids);
    clip.format.branches = std::ssize(clip.texts);
    clip.hidden = {size.frames, (clip.latents[1] + 1) / 2, (clip.latents[2] + 1) / 2,
                   clip.format.branches, width};
    clip.sampling = {
        std::make_shared<RectifiedFlow>(RectifiedFlowConfig{}, clip.steps(), clip.format.size),
        {constant_guidance(clip.guidance()), channels},
        {},
        {},
        {}};
    if (job.scheduler) {
      const FlowSampler& sampler = sampler_of_option(flow_samplers(), *job.scheduler);
      clip.record.scheduler = sampler.class_name;
      clip.sampling.sampler =
          sampler.make({.shift = clip.record.settings.flow_shift.value_or(1)}, clip.steps());
    }
    if (!clip.input) return;
    clip.input->latent_frames = clip.input->frames;
    clip.input->scale = 0.5;
    clip.input->noise = NoiseRule{.channels_first = true};
    if (clip.strength()) clip.sampling.first_noise = NoiseLevel{.signal = 0.75F, .noise = 0.5F};
  }

  ModelPaths paths_;
  T5Config t5_;
};

}  // namespace

void write_toy_model(const std::filesystem::path& root, const std::filesystem::path& text_encoder) {
  const T5Config text = T5Config::read(Config::read(text_encoder / "config.json"));
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, shape] :
       asked_by([&](const Checkpoint& of) { ToyDenoiser(of, text.d_model, DType::float32); })) {
    tensors.push_back({name, DType::float32, shape});
  }
  std::filesystem::create_directories(root);
  write_safetensors(root / "transformer", "diffusion_pytorch_model", tensors,
                    [&](std::size_t i, Tensor& out) {
                      const auto& [name, dtype, shape] = tensors[i];
                      const bool is_product = shape.size() == 2;
                      const float spread = is_product ? 1.0F / std::sqrt(float(shape[1])) : 0.1F;
                      fill_random(out, name, 1, {name == "norm.weight" ? 1.0F : 0.0F, spread});
                    });
  std::ofstream(root / "model_index.json") << fmt::format(R"({{"_class_name": "{}"}})", toy_class);
}

void add_toy_family() {
  Family::add(toy_class, [](const ModelPaths& paths) {
    return std::unique_ptr<const Family>(std::make_unique<Toy>(paths));
  });
}

}  // namespace reelmesh::test
