#include "sampler/cuda/steps.hpp"

#include "sampler/step_arithmetic.hpp"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

struct Guide {
  float scale;
  __device__ float operator()(float uncond, float cond) const {
    return guided(scale, uncond, cond);
  }
};

// Guides the first channels of each frame.
struct GuideChannels {
  Guide guide;
  const float* uncond;
  float* cond;
  std::uint32_t count;  // guided elements of a frame
  std::int64_t frame;   // elements of a frame
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, count);
    const std::int64_t first = element.row * frame + element.column;
    each<W>(cond + first, guide, uncond + first, cond + first);
  }
};

struct Ddim {
  DdimCoefficients c;
  __device__ float operator()(float v, float x) const { return ddim_next(c, v, x); }
};

struct Dpm {
  DpmCoefficients c;
  const float *v, *noise;
  float *clean, *x;
  template <int W>
  __device__ void run(std::int64_t at) const {
    float a[W], n[W], before[W] = {}, b[W];
    load<W>(v + at, a);
    load<W>(noise + at, n);
    if (c.second_order) load<W>(clean + at, before);
    load<W>(x + at, b);
    for (int i = 0; i < W; ++i) b[i] = dpm_next(c, a[i], n[i], before[i], b[i]);
    store<W>(before, clean + at);
    store<W>(b, x + at);
  }
};

struct IddpmStep {
  IddpmCoefficients c;
  bool last;
  const float *prediction, *noise;
  float* x;
  std::uint32_t frame;  // elements of a frame; the prediction has twice as many
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, frame);
    const std::int64_t epsilon = std::int64_t{2} * element.row * frame + element.column;
    float e[W], between[W] = {}, n[W] = {}, b[W];
    load<W>(prediction + epsilon, e);
    load<W>(x + at, b);
    if (!last) {
      load<W>(prediction + epsilon + frame, between);
      load<W>(noise + at, n);
    }
    for (int i = 0; i < W; ++i) {
      b[i] = iddpm_mean(c, e[i], b[i]);
      // In double precision, then rounded: nearly always equal to the host's float exp.
      if (!last) {
        const double log_deviation = 0.5F * iddpm_log_variance(c, between[i]);
        b[i] = b[i] + static_cast<float>(exp(log_deviation)) * n[i];
      }
    }
    store<W>(b, x + at);
  }
};

struct UniPcElements {
  UniPcCoefficients c;
  const float* v;
  float *clean, *before, *sample, *x;
  template <int W>
  __device__ void run(std::int64_t at) const {
    float a[W], m0[W] = {}, m1[W] = {}, s[W] = {}, b[W];
    load<W>(v + at, a);
    load<W>(x + at, b);
    if (c.corrector.order > 0) {
      load<W>(clean + at, m0);
      load<W>(before + at, m1);
      load<W>(sample + at, s);
    }
    for (int i = 0; i < W; ++i) b[i] = unipc_next(c, a[i], m0[i], m1[i], s[i], b[i]);
    store<W>(m0, clean + at);
    store<W>(m1, before + at);
    store<W>(s, sample + at);
    store<W>(b, x + at);
  }
};

struct Flow {
  float stride;
  const float* prediction;
  float* x;
  std::uint32_t frame;     // elements of a frame
  std::int64_t predicted;  // elements of a frame of the prediction
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, frame);
    const auto next = [this](float v, float before) { return flow_next(stride, v, before); };
    each<W>(x + at, next, prediction + element.row * predicted + element.column, x + at);
  }
};

std::int64_t frame_elements(const Tensor& x) { return x.shape(1) * x.shape(2) * x.shape(3); }

}  // namespace

void guide_channels(double scale, std::int64_t channels, const Tensor& uncond, Tensor& cond) {
  const Device device = cond.device();
  const std::int64_t count = channels * cond.shape(2) * cond.shape(3);
  const GuideChannels f{{static_cast<float>(scale)},
                        address<float>(uncond, device),
                        address<float>(cond, device),
                        narrow_index(count),
                        frame_elements(cond)};
  // Packs (vector loads) need every frame to be aligned: if the second frame is, all are.
  for_packs<float>("guide_channels", device, cond.shape(0) * count, count,
                   {f.uncond, f.cond, f.uncond + f.frame, f.cond + f.frame}, f);
}

void ddim_step(const DdimCoefficients& c, const Tensor& v, Tensor& x) {
  expect(v.numel() == x.numel(), "DDIM step of {} values with {} predictions", x.numel(),
         v.numel());
  map<float>("ddim_step", x, Ddim{c}, v, x);
}

void dpm_step(const DpmCoefficients& c, const Tensor& v, const Tensor& noise, Tensor& clean,
              Tensor& x) {
  expect(v.numel() == x.numel() && noise.numel() == x.numel() && clean.numel() == x.numel(),
         "DPM step of {} values with {} predictions, {} of noise and {} clean ones", x.numel(),
         v.numel(), noise.numel(), clean.numel());
  const Device device = x.device();
  const Dpm f{c, address<float>(v, device), address<float>(noise, device),
              address<float>(clean, device), address<float>(x, device)};
  for_packs<float>("dpm_step", device, x.numel(), x.numel(), {f.v, f.noise, f.clean, f.x}, f);
}

void iddpm_step(const IddpmCoefficients& c, bool last, const Tensor& prediction,
                const Tensor& noise, Tensor& x) {
  const Device device = x.device();
  const std::int64_t frame = frame_elements(x);
  const IddpmStep f{c,
                    last,
                    address<float>(prediction, device),
                    address<float>(noise, device),
                    address<float>(x, device),
                    narrow_index(frame)};
  for_packs<float>("iddpm_step", device, x.numel(), frame, {f.prediction, f.noise, f.x}, f);
}

void unipc_step(const UniPcCoefficients& c, const Tensor& v, UniPcKept& kept, Tensor& x) {
  const Device device = x.device();
  const UniPcElements f{c,
                        address<float>(v, device),
                        address<float>(kept.clean, device),
                        address<float>(kept.clean_before, device),
                        address<float>(kept.sample, device),
                        address<float>(x, device)};
  for_packs<float>("unipc_step", device, x.numel(), x.numel(),
                   {f.v, f.clean, f.before, f.sample, f.x}, f);
}

void flow_step(float stride, const Tensor& prediction, Tensor& x) {
  const Device device = x.device();
  const std::int64_t frame = frame_elements(x);
  const Flow f{stride, address<float>(prediction, device), address<float>(x, device),
               narrow_index(frame), frame_elements(prediction)};
  for_packs<float>("flow_step", device, x.numel(), frame,
                   {f.prediction, f.prediction + f.predicted, f.x}, f);
}

}  // namespace reelmesh::gpu
