#include "pipeline/layouts/toy_family.hpp"

#include <cmath>

#include "layout/attend.hpp"
#include "models/common/channels_last.hpp"
#include "models/common/layers.hpp"
#include "models/common/random_weights.hpp"
#include "ops/attention.hpp"
#include "ops/pointwise.hpp"
#include "plan/denoise.hpp"
#include "sampler/flow_samplers.hpp"
#include "sampler/rectified_flow.hpp"
#include "sampler/sampler_rows.hpp"
#include "weights/config.hpp"

namespace reelmesh::test {
namespace {

constexpr std::int64_t channels = 4, heads = 3, head_channels = 8, width = heads * head_channels;
constexpr std::int64_t pixels = 4;  // pixels per latent, along each side
const ops::Patch patch{1, 2, 2};

ops::Linear product(const char* name, std::int64_t in, std::int64_t out, DType dtype,
                    Device device) {
  Tensor weight = Tensor::empty({out, in}, dtype, device);
  if (!device.only_shapes) fill_random(weight, name, 1, {0, 1.0F / std::sqrt(float(in))});
  return ops::Linear(weight);
}

// One block: self-attention of the video's tokens over a mesh, then cross-attention to the text,
// which each rank has whole.
class ToyDenoiser final : public Denoiser {
 public:
  ToyDenoiser(std::int64_t text_channels, DType dtype, Device device)
      : dtype_(dtype),
        device_(device),
        in_(product("in", 4 * channels, width, dtype, device)),
        text_(product("text", text_channels, 2 * width, dtype, device)),
        time_(product("time", 1, width, dtype, device)),
        query_(product("query", width, width, dtype, device)),
        key_value_(product("key_value", width, 2 * width, dtype, device)),
        to_text_(product("to_text", width, width, dtype, device)),
        out_(product("out", width, 4 * channels, dtype, device)) {}

  Device device() const override { return device_; }
  Tensor embed(double timestep) const override {
    if (device_.only_shapes) return time_(Tensor::empty({1, 1}, dtype_, device_));
    return time_(Tensor::of({float(timestep) / 1000}, {1, 1}).to(dtype_));
  }
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task,
                                    std::span<const Conditioning> conditioning) const override {
    return std::make_unique<OnRanks>(*this, task, conditioning);
  }

 private:
  class OnRanks final : public Prepared {
   public:
    OnRanks(const ToyDenoiser& model, const DenoiseTask& task,
            std::span<const Conditioning> conditioning)
        : model_(model),
          branches_(task.branches),
          attend_(task.group, {task.layout.tokens},
                  {task.branches, heads, head_channels, task.layout.mesh.ring}, model.dtype_,
                  model.device_) {
      for (const Conditioning& clip : conditioning) {
        const std::int64_t tokens = clip.text.shape(0);
        texts_.push_back(
            model.text_(clip.text).reshape({tokens, branches_, 2, heads, head_channels}));
        images_.push_back(clip.image);
        residuals_.emplace_back();
      }
    }

    std::vector<Tensor> predict_together(std::span<const Tensor> latents, const Tensor& time,
                                         const StepKind& kind) override {
      std::vector<Tensor> all;
      for (std::size_t clip = 0; clip < latents.size(); ++clip) {
        const Tensor seen = images_[clip].empty() ? latents[clip] : latents[clip].clone();
        add(images_[clip], seen);
        const Tensor video = model_.in_(ops::patchify(seen, patch, model_.dtype_));
        const std::int64_t tokens = video.shape(0);
        Tensor x = Tensor::empty({tokens, branches_, width}, model_.dtype_, model_.device_);
        ops::repeat_for_batch(video, x);
        for (std::int64_t token = 0; token < tokens; ++token) {
          Tensor row = x.rows(token, 1);
          ops::add_table(row, time);
        }
        const Tensor before = x.clone();
        if (kind.blocks == Blocks::reuse) {
          ops::add(x, residuals_[clip]);
        } else {
          run_block(texts_[clip], x);
        }
        if (kind.blocks == Blocks::compute_and_keep) {
          residuals_[clip] = ops::scaled(before, -1);
          ops::add(residuals_[clip], x);
        }
        const Tensor features = model_.out_(x);
        for (std::int64_t branch = 0; branch < branches_; ++branch) {
          all.push_back(ops::unpatchify(features, branch, patch, latents[clip].shape()));
        }
      }
      return all;
    }
    Tensor residual(std::int64_t clip) const override {
      return residuals_[static_cast<std::size_t>(clip)].to(DType::float32);
    }
    void set_residual(std::int64_t clip, const Tensor& values) override {
      residuals_[static_cast<std::size_t>(clip)] = values.to(model_.dtype_);
    }

   private:
    void run_block(const Tensor& text, Tensor& x) const {
      const std::int64_t tokens = x.shape(0);
      const auto split = [&](const Tensor& from) {
        return from.reshape({tokens, branches_, heads, head_channels});
      };
      const Tensor own = attend_(
          split(model_.query_(x)),
          [&] {
            return model_.key_value_(x).reshape({tokens, branches_, 2, heads, head_channels});
          },
          0.3F);
      ops::add(x, own.reshape(x.shape()));
      ops::add(x, ops::attend(split(model_.to_text_(x)), text, 0.3F).reshape(x.shape()));
    }
    static void add(const Tensor& image, Tensor x) {
      for (std::int64_t i = 0; i < image.numel() && !x.device().only_shapes; ++i) {
        x.data<float>()[i] += image.data<float>()[i];
      }
    }

    const ToyDenoiser& model_;
    std::int64_t branches_;
    Attend attend_;
    std::vector<Tensor> texts_, images_, residuals_;
  };

  DType dtype_;
  Device device_;
  ops::Linear in_, text_, time_, query_, key_value_, to_text_, out_;
};

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
  // Only the text encoder has files.
  std::string weights_hash(const comm::Group&) const override { return "toy"; }
  Checkpoint open(ModelPart part) const override {
    return part == ModelPart::text_encoder ? Family::open(part) : Checkpoint::of_shapes();
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
  std::unique_ptr<const Denoiser> denoiser(const Checkpoint& weights, DType dtype,
                                           const WeightPlacement&, std::int64_t) const override {
    return std::make_unique<ToyDenoiser>(t5_.d_model, dtype, weights.device());
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
    clip.input->noise = {.channels_first = true};
    if (clip.strength()) clip.sampling.first_noise = NoiseLevel{.signal = 0.75F, .noise = 0.5F};
  }

  ModelPaths paths_;
  T5Config t5_;
};

}  // namespace

void add_toy_family() {
  Family::add(toy_class, [](const ModelPaths& paths) {
    return std::unique_ptr<const Family>(std::make_unique<Toy>(paths));
  });
}

}  // namespace reelmesh::test
