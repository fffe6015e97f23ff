#include "ops/onednn.hpp"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include "base/error.hpp"
#include "base/processor.hpp"
#include "ops/amx.hpp"
#include "ops/packing.hpp"
#include "ops/plain_product.hpp"
#include "ops/products.hpp"

namespace reelmesh::ops {

const dnnl::engine& engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

namespace {

std::atomic<Products> chosen_products = Products::automatic;

// oneDNN's names are those of instruction sets of x86.
bool has(dnnl::cpu_isa isa) {
  static const auto had = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return on_x86 && (had & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
}

bool has_amx() {
  return amx::uses_plain_kernels() || (has(dnnl::cpu_isa::avx512_core_amx) && amx::permitted());
}

bool multiplies_bfloat16_faster() {
  return has_amx() || (has(dnnl::cpu_isa::avx512_core_bf16) && is_amd());
}

}  // namespace

bool has_bfloat16_products() {
  return has(dnnl::cpu_isa::avx512_core) || amx::uses_plain_kernels();
}

void choose_products(Products choice) {
  expect(choice != Products::bfloat16 || has_bfloat16_products(),
         "products in bfloat16 without AVX-512");
  chosen_products = choice;
}

std::string_view bfloat16_products() {
  const Products choice = chosen_products;
  if (choice == Products::float32) return "float32";
  if (choice == Products::automatic && !multiplies_bfloat16_faster()) return "float32";
  return has_amx()                              ? "bfloat16 (AMX)"
         : has(dnnl::cpu_isa::avx512_core_bf16) ? "bfloat16 (AVX512_BF16)"
                                                : "bfloat16 (AVX-512)";
}

std::string_view vector_instructions() {
  if (!on_x86) return "as compiled";
  return has_amx()                              ? "AVX-512 with AMX"
         : has(dnnl::cpu_isa::avx512_core_bf16) ? "AVX-512 with BF16"
         : has(dnnl::cpu_isa::avx512_core)      ? "AVX-512"
         : has(dnnl::cpu_isa::avx2)             ? "AVX2"
                                                : "SSE4.1";
}

bool lacks_avx2() { return on_x86 && !(has(dnnl::cpu_isa::avx2) && has_fma()); }

DType compute_dtype(DType dtype) {
  return dtype == DType::bfloat16 && bfloat16_products() != "float32" ? DType::bfloat16
                                                                      : DType::float32;
}

DType compute_dtype(DType dtype, Device device) {
  return device.only_shapes ? Ledger::current().precision().products_of(dtype)
                            : compute_dtype(dtype);
}

bool uses_amx(DType compute) { return compute == DType::bfloat16 && has_amx(); }

bool row_bits_independent_of_tile_height(DType compute) {
  if (compute == DType::bfloat16) {
    return has(dnnl::cpu_isa::avx512_core_bf16) && !has(dnnl::cpu_isa::avx512_core_amx);
  }
  return compute == DType::float32 && (!on_x86 || has(dnnl::cpu_isa::avx512_core));
}

std::int64_t rows_of_last_tile(std::int64_t tile_rows, std::int64_t rest, DType compute) {
  return row_bits_independent_of_tile_height(compute) ? (rest + 7) / 8 * 8 : tile_rows;
}

dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

SingleThreadScope::SingleThreadScope() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
SingleThreadScope::~SingleThreadScope() { omp_set_num_threads(before_); }

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

struct Primitive::Made {
  std::uint64_t id = 0;
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
  std::vector<std::pair<int, dnnl::memory::desc>> arguments;
};

Primitive::Primitive(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad,
                     std::vector<std::pair<int, dnnl::memory::desc>> arguments) {
  static std::atomic<std::uint64_t> made = 0;
  made_ = std::make_shared<const Made>(
      Made{++made, std::move(primitive), scratchpad, std::move(arguments)});
}

void Primitive::run(std::initializer_list<const void*> data) const {
  // Creating memory objects is slow compared with a small product, so each thread keeps those of a
  // few primitives that it ran recently.
  struct Bound {
    std::uint64_t id = 0;
    std::unordered_map<int, dnnl::memory> memory;
  };
  thread_local std::array<Bound, 8> kept;
  thread_local std::size_t oldest = 0;
  auto bound =
      std::find_if(kept.begin(), kept.end(), [&](const Bound& one) { return one.id == made_->id; });
  const SingleThreadScope one;  // kernels without AVX-512 read the number of threads here
  if (bound == kept.end()) {
    bound = kept.begin() + static_cast<std::ptrdiff_t>(oldest++ % kept.size());
    *bound = {made_->id, {}};
    for (const auto& [index, description] : made_->arguments) {
      bound->memory.emplace(index, dnnl::memory(description, engine(), nullptr));
    }
    bound->memory.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(made_->scratchpad, engine(), nullptr));
  }
  const void* const* next = data.begin();
  for (const auto& [index, description] : made_->arguments) {
    bound->memory.at(index).set_data_handle(const_cast<void*>(*next++));
  }
  bound->memory.at(DNNL_ARG_SCRATCHPAD)
      .set_data_handle(thread_scratch(scratchpad_slot, made_->scratchpad.get_size() + 64));
  made_->primitive.execute(stream(), bound->memory);
}

Primitive reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  const SingleThreadScope one;
  const dnnl::reorder::primitive_desc description(engine(), from, engine(), to, user_scratchpad());
  return {dnnl::reorder(description),
          description.scratchpad_desc(),
          {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

namespace {

dnnl::matmul::primitive_desc describe_product(std::int64_t m, std::int64_t n, std::int64_t k,
                                              DType dtype, TileProduct::Form form = {}) {
  const SingleThreadScope one;
  using Tag = dnnl::memory::format_tag;
  const auto type = onednn_type(dtype);
  dnnl::primitive_attr attributes = user_scratchpad();
  if (form.adds) {
    dnnl::post_ops after;
    after.append_sum();
    attributes.set_post_ops(after);
  }
  return matmul_description({{m, k}, type, Tag::ab},
                            {{k, n}, type, form.dense_weights || !on_x86 ? Tag::ab : Tag::any},
                            {{m, n}, dnnl::memory::data_type::f32, Tag::ab}, attributes);
}

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

TileProduct::TileProduct(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, Form form)
    : m_(m), n_(n), k_(k), dtype_(dtype), adds_(form.adds) {
  // Cached, because attention uses the same few shapes again and again.
  static std::mutex mutex;
  static std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, DType, Form>,
                  std::pair<dnnl::memory::desc, Primitive>>
      made;
  const std::scoped_lock lock(mutex);
  auto& [weights, primitive] = made[{m, n, k, dtype, form}];
  if (weights.get_size() == 0) {
    const SingleThreadScope one;
    const dnnl::matmul::primitive_desc description = describe_product(m, n, k, dtype, form);
    weights = description.weights_desc();
    primitive = Primitive(dnnl::matmul(description), description.scratchpad_desc(),
                          {{DNNL_ARG_SRC, description.src_desc()},
                           {DNNL_ARG_WEIGHTS, weights},
                           {DNNL_ARG_DST, description.dst_desc()}});
  }
  weights_ = weights;
  primitive_ = primitive;
}

namespace {

// Packed weights begin at multiples of this number of elements.
constexpr std::int64_t packed_alignment = 64;

std::int64_t aligned_elements(const dnnl::memory::desc& weights, DType dtype) {
  return round_up(static_cast<std::int64_t>(weights.get_size()) / size_of(dtype), packed_alignment);
}

// Maximum over oneDNN's known layouts: rows in blocks of 64 bytes or not blocked, columns in blocks
// of 16, 32, 48 or 64 or not blocked. The block size depends on more than the number of columns.
std::int64_t max_packed_elements(std::int64_t k, std::int64_t n, DType dtype) {
  std::int64_t columns = n;
  for (const std::int64_t block : {16, 32, 48, 64}) columns = std::max(columns, round_up(n, block));
  return round_up(round_up(k, 64 / size_of(dtype)) * columns, packed_alignment);
}

}  // namespace

std::int64_t packed_matrix_bytes(std::int64_t k, std::int64_t n, DType products, PackedFor target) {
  if (k == 0 || n == 0) return 0;
  if (target == PackedFor::any_processor || compute_dtype(products) != products) {
    return max_packed_elements(k, n, products) * size_of(products);
  }
  if (uses_amx(products)) return amx::packed_elements(n, k) * size_of(products);
  // Cached, because plans ask for the same few shapes again and again.
  static std::mutex mutex;
  static std::map<std::tuple<std::int64_t, std::int64_t, DType>, std::int64_t> known;
  const std::scoped_lock lock(mutex);
  std::int64_t& elements = known[{k, n, products}];
  if (elements == 0) {
    elements = aligned_elements(
        describe_product(TileProduct::tile_rows, n, k, products).weights_desc(), products);
  }
  return elements * size_of(products);
}

std::string packing_signature() {
  const dnnl_version_t* version = dnnl::version();
  return fmt::format("oneDNN {}.{}.{} {}, instructions {:x}, caches {} {} {}", version->major,
                     version->minor, version->patch, version->hash,
                     static_cast<unsigned>(dnnl::get_effective_cpu_isa()),
                     ::sysconf(_SC_LEVEL1_DCACHE_SIZE), ::sysconf(_SC_LEVEL2_CACHE_SIZE),
                     ::sysconf(_SC_LEVEL3_CACHE_SIZE));
}

std::int64_t TileProduct::packed_elements() const { return aligned_elements(weights_, dtype_); }

Primitive TileProduct::packing(bool transposed, std::int64_t stride) const {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return reorder({{k_, n_}, onednn_type(dtype_), strides}, weights_);
}

void TileProduct::run(const void* src, const void* weights, float* dst) const {
  if constexpr (on_x86) {
    primitive_.run({src, weights, dst});
  } else {
    expect(dtype_ == DType::float32, "a product of {} on this processor", name_of(dtype_));
    plain_product(m_, n_, k_, static_cast<const float*>(src), k_,
                  static_cast<const float*>(weights), dst, adds_);
  }
}

}  // namespace reelmesh::ops
