#include "sampler/cuda/steps.hpp"

#include "sampler/step_arithmetic.hpp"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

struct Guide {
  float scale;
  const float *uncond, *cond;
  float* out;
  template <int W>
  __device__ void run(std::int64_t at) const {
    float a[W], b[W];
    load<W>(uncond + at, a);
    load<W>(cond + at, b);
    for (int i = 0; i < W; ++i) a[i] = guided(scale, a[i], b[i]);
    store<W>(a, out + at);
  }
};

struct Ddim {
  DdimCoefficients c;
  const float* v;
  float* x;
  template <int W>
  __device__ void run(std::int64_t at) const {
    float a[W], b[W];
    load<W>(v + at, a);
    load<W>(x + at, b);
    for (int i = 0; i < W; ++i) b[i] = ddim_next(c, a[i], b[i]);
    store<W>(b, x + at);
  }
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

}  // namespace

void combine_guidance(double scale, const Tensor& uncond, const Tensor& cond, const Tensor& out) {
  expect(uncond.numel() == out.numel() && cond.numel() == out.numel(),
         "guidance of {} and {} values into {}", uncond.numel(), cond.numel(), out.numel());
  const Device device = out.device();
  const Guide f{static_cast<float>(scale), address<float>(uncond, device),
                address<float>(cond, device), address<float>(out, device)};
  for_packs<float>("combine_guidance", device, out.numel(), out.numel(), {f.uncond, f.cond, f.out},
                   f);
}

void ddim_step(const DdimCoefficients& c, const Tensor& v, const Tensor& x) {
  expect(v.numel() == x.numel(), "DDIM step of {} values with {} predictions", x.numel(),
         v.numel());
  const Device device = x.device();
  const Ddim f{c, address<float>(v, device), address<float>(x, device)};
  for_packs<float>("ddim_step", device, x.numel(), x.numel(), {f.v, f.x}, f);
}

void dpm_step(const DpmCoefficients& c, const Tensor& v, const Tensor& noise, const Tensor& clean,
              const Tensor& x) {
  expect(v.numel() == x.numel() && noise.numel() == x.numel() && clean.numel() == x.numel(),
         "DPM step of {} values with {} predictions, {} of noise and {} clean ones", x.numel(),
         v.numel(), noise.numel(), clean.numel());
  const Device device = x.device();
  const Dpm f{c, address<float>(v, device), address<float>(noise, device),
              address<float>(clean, device), address<float>(x, device)};
  for_packs<float>("dpm_step", device, x.numel(), x.numel(), {f.v, f.noise, f.clean, f.x}, f);
}

}  // namespace reelmesh::gpu
