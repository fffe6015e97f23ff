#include "ops/onednn.hpp"

#include <omp.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <unordered_map>

namespace reelmesh::ops {

const dnnl::engine& engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

DType compute_dtype(DType dtype) {
  static const bool has_avx512 = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) &
                                  static_cast<unsigned>(dnnl::cpu_isa::avx512_core)) ==
                                 static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return dtype == DType::bfloat16 && has_avx512 ? DType::bfloat16 : DType::float32;
}

dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

ForOneThread::ForOneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
ForOneThread::~ForOneThread() { omp_set_num_threads(before_); }

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

void* thread_scratch(std::size_t slot, std::size_t bytes) {
  struct Freed {
    void operator()(void* p) const { std::free(p); }
  };
  struct Buffer {
    std::unique_ptr<void, Freed> data;
    std::size_t bytes = 0;
  };
  thread_local std::array<Buffer, 8> buffers;
  Buffer& buffer = buffers.at(slot);
  if (buffer.bytes < bytes) {
    buffer.data.reset();
    buffer.bytes = (bytes + 63) / 64 * 64;
    buffer.data.reset(std::aligned_alloc(64, buffer.bytes));
    if (!buffer.data) {
      buffer.bytes = 0;
      throw std::bad_alloc();
    }
  }
  return buffer.data.get();
}

namespace {

constexpr std::size_t scratchpad_slot = 7;

const dnnl::stream& stream() {
  thread_local const dnnl::stream instance(engine());
  return instance;
}

}  // namespace

void execute(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
             std::vector<std::pair<int, dnnl::memory>> arguments) {
  const ForOneThread one;  // kernels without AVX-512 choose their threads when they run
  std::unordered_map<int, dnnl::memory> map(arguments.begin(), arguments.end());
  map.emplace(DNNL_ARG_SCRATCHPAD,
              dnnl::memory(scratchpad, engine(),
                           thread_scratch(scratchpad_slot, scratchpad.get_size() + 64)));
  primitive.execute(stream(), map);
}

void reorder(const dnnl::memory::desc& from, const void* plain, const dnnl::memory::desc& to,
             void* packed) {
  const ForOneThread one;
  const dnnl::reorder::primitive_desc description(engine(), from, engine(), to, user_scratchpad());
  execute(dnnl::reorder(description), description.scratchpad_desc(),
          {{DNNL_ARG_FROM, dnnl::memory(from, engine(), const_cast<void*>(plain))},
           {DNNL_ARG_TO, dnnl::memory(to, engine(), packed)}});
}

TileProduct::TileProduct(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype)
    : m_(m), n_(n), k_(k), dtype_(dtype) {
  const ForOneThread one;
  using Tag = dnnl::memory::format_tag;
  const auto type = onednn_type(dtype);
  description_ = {{{{m, k}, type, Tag::ab},
                   {{k, n}, type, Tag::any},
                   {{m, n}, dnnl::memory::data_type::f32, Tag::ab}},
                  user_scratchpad(),
                  engine()};
  primitive_ = dnnl::matmul(description_);
}

std::size_t TileProduct::packed_bytes() const {
  return (description_.weights_desc().get_size() + 63) / 64 * 64;
}

void TileProduct::pack(const void* weights, bool transposed, std::int64_t stride,
                       void* packed) const {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  reorder({{k_, n_}, onednn_type(dtype_), strides}, weights, description_.weights_desc(), packed);
}

void TileProduct::run(const void* src, const void* packed, float* dst) const {
  execute(primitive_, description_.scratchpad_desc(),
          {{DNNL_ARG_SRC, dnnl::memory(description_.src_desc(), engine(), const_cast<void*>(src))},
           {DNNL_ARG_WEIGHTS,
            dnnl::memory(description_.weights_desc(), engine(), const_cast<void*>(packed))},
           {DNNL_ARG_DST, dnnl::memory(description_.dst_desc(), engine(), dst)}});
}

}  // namespace reelmesh::ops
