#include "ops/cuda/linear.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/trace.hpp"
#include "ops/cuda/blas.hpp"
#include "ops/cuda/digest.hpp"
#include "ops/cuda/ops.hpp"
#include "ops/cuda/timing.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh::gpu {
namespace {

using blas::Algorithm, blas::Operands, blas::Problem, blas::Product;

// Products with fewer rows or outputs use the reference without measurements: they take little
// time, and a comparison of few bits proves little.
constexpr std::int64_t min_measured_rows = 1024, min_measured_outputs = 1 << 20;
// A row has the bits that it has in a call with this number of rows: others are compared with it.
constexpr std::int64_t whole_rows = 1024;

// The arguments of one call.
struct Call {
  const Tensor& x;
  const Tensor& weight;
  ops::Pass pass;
  const Tensor& bias;
  Tensor& y;
  std::int64_t in() const { return x.shape().back(); }
  std::int64_t out() const { return y.shape().back(); }
  std::int64_t rows() const { return x.numel() / in(); }
};

// How products with some number of rows are computed.
struct Choice {
  Algorithm algorithm{};
  std::int64_t padded =
      0;  ///< rows are computed in zero-padded pieces of this size; 0: all at once
};

// The products of one weight shape, type and epilogue with one reference algorithm.
class Products {
 public:
  Products(cublasLtHandle_t library, Device device, const Problem& problem, bool reproducible,
           std::int64_t all_rows, void* workspace)
      : device_(device),
        reproducible_(reproducible),
        all_rows_(all_rows),
        product_(library, device, problem, workspace),
        reference_(product_.proposals(all_rows, !reproducible).front()) {}

  void run(const Call& call) {
    auto found = choices_.find(call.rows());
    if (found == choices_.end()) found = choices_.emplace(call.rows(), choose(call)).first;
    if (found->second.padded > 0) ++trace::recorder().padded_products;
    run(found->second, call);
  }

  // Measures the proposals for the rows of the call, and the reference, which is the first. Only
  // algorithms that support the rows are measured; y is overwritten.
  std::vector<std::pair<Algorithm, ProductTiming>> measure(const Call& call) {
    const Choice reference = of_reference(call.rows());
    run(reference, call);
    const Digest expected = digest(call.y);
    std::vector<std::pair<Algorithm, ProductTiming>> measured{{reference_, {0, true}}};
    std::vector<std::function<void()>> calls{[&] { run(reference, call); }};
    std::vector<std::size_t> measured_by{0};  // of each call
    for (const Algorithm& candidate : product_.proposals(call.rows(), !reproducible_)) {
      ProductTiming& timing = measured.emplace_back(candidate, ProductTiming{}).second;
      if (product_.enqueue(candidate, operands(call), call.rows()) != CUBLAS_STATUS_SUCCESS) {
        continue;
      }
      timing.same_bits = expected.nonzero >= min_measured_outputs / 2 && digest(call.y) == expected;
      measured_by.push_back(measured.size() - 1);
      calls.push_back([&, candidate] { product_.run(candidate, operands(call), call.rows()); });
    }
    const std::vector<double> seconds = measure_seconds(device_, calls);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      measured[measured_by[i]].second.seconds = seconds[i];
    }
    return measured;
  }

 private:
  Operands operands(const Call& call) const {
    return {call.x.address_on(device_), call.weight.address_on(device_),
            call.bias.empty() ? nullptr : call.bias.address_on(device_),
            call.y.address_on(device_)};
  }

  Choice choose(const Call& call) {
    const bool large = call.rows() >= min_measured_rows && call.y.numel() >= min_measured_outputs;
    Choice choice = of_reference(call.rows());
    if (cuda::captures(cuda::stream(device_))) return choice;
    if (reproducible_ && choice.padded == 0 && !has_bits_of_whole(call)) {
      log::warning_here(
          "products with weights {} x {} in {} have other bits for {} rows than for {}; these rows "
          "are padded",
          call.out(), call.in(), name_of(call.x.dtype()), call.rows(), whole_rows);
      return {reference_, whole_rows};
    }
    if (!large) return choice;
    const auto measured = measure(call);
    const double of_first = measured.front().second.seconds;
    double best = of_first / min_gain;
    for (const auto& [algorithm, timing] : measured) {
      if (timing.seconds == 0 || timing.seconds >= best) continue;
      if (reproducible_ && !timing.same_bits) continue;
      choice = {algorithm, 0};
      best = timing.seconds;
    }
    log::debug(
        "product {} x {} x {} in {}: reference {:.3g} ms, best of {} with its bits {:.3g} ms",
        call.rows(), call.in(), call.out(), name_of(call.x.dtype()), 1e3 * of_first,
        std::ranges::count_if(measured, [](const auto& each) { return each.second.same_bits; }),
        1e3 * std::min(best, of_first));
    return choice;
  }

  // Whether the reference, which supports the rows of the call, gives them the bits that they have
  // among whole_rows rows. cuBLASLt only promises bits of equal calls. y is overwritten.
  bool has_bits_of_whole(const Call& call) {
    const PurposeScope purpose(Purpose::workspace);
    const std::int64_t rows = call.rows();
    if (rows == whole_rows || !product_.takes(reference_, whole_rows)) return true;
    const Tensor x = rows > whole_rows ? call.x.reshape({rows, call.in()}).rows(0, whole_rows)
                                       : rows_of_weight(call);
    Tensor whole = empty_rows(whole_rows, call.out(), call);
    run(Choice{reference_, 0}, {x, call.weight, call.pass, call.bias, whole});
    if (rows > whole_rows) {
      run(Choice{reference_, 0}, call);
      return digest(call.y.reshape({rows, call.out()}).rows(0, whole_rows)) == digest(whole);
    }
    // So many calls that differences show, which change few bits of 16-bit results.
    const std::int64_t needed = (min_measured_outputs / call.out() + rows - 1) / rows * rows;
    const std::int64_t compared = std::min(needed, whole_rows / rows * rows);
    Tensor parts = empty_rows(compared, call.out(), call);
    Tensor from = empty_rows(rows, call.in(), call), into = empty_rows(rows, call.out(), call);
    for (std::int64_t first = 0; first < compared; first += rows) {
      from.copy_from(x.rows(first, rows));
      run(Choice{reference_, 0}, {from, call.weight, call.pass, call.bias, into});
      parts.rows(first, rows).copy_from(into);
    }
    return digest(whole.rows(0, compared)) == digest(parts);
  }

  Tensor empty_rows(std::int64_t rows, std::int64_t columns, const Call& call) const {
    return Tensor::empty({rows, columns}, call.x.dtype(), device_);
  }

  // whole_rows rows for comparisons: the weight's values, which need no other memory.
  Tensor rows_of_weight(const Call& call) const {
    const Tensor values = call.weight.reshape({call.weight.numel() / call.in(), call.in()});
    const std::int64_t there = values.shape(0);
    if (there >= whole_rows) return values.rows(0, whole_rows);
    Tensor x = empty_rows(whole_rows, call.in(), call);
    for (std::int64_t first = 0; first < whole_rows; first += there) {
      const std::int64_t count = std::min(there, whole_rows - first);
      x.rows(first, count).copy_from(values.rows(0, count));
    }
    return x;
  }

  // The reference as it can be used for this number of rows.
  Choice of_reference(std::int64_t rows) const {
    constexpr std::int64_t max_piece = 4096;
    if (product_.takes(reference_, rows)) return {reference_, 0};
    for (const std::int64_t unit : {8, 64, 512, 4096}) {
      const std::int64_t piece = (std::min(rows, max_piece) + unit - 1) / unit * unit;
      if (product_.takes(reference_, piece)) return {reference_, piece};
    }
    return {reference_, all_rows_};
  }

  void run(const Choice& choice, const Call& call) {
    if (choice.padded == 0) return product_.run(choice.algorithm, operands(call), call.rows());
    const std::int64_t rows = call.rows(), piece = choice.padded;
    const Tensor flat = call.x.reshape({rows, call.in()});
    Tensor result = call.y.reshape({rows, call.out()});
    Tensor from = Tensor::zeros({piece, call.in()}, call.x.dtype(), device_);
    Tensor into = Tensor::empty({piece, call.out()}, call.x.dtype(), device_);
    for (std::int64_t first = 0; first < rows; first += piece) {
      const std::int64_t count = std::min(piece, rows - first);
      from.rows(0, count).copy_from(flat.rows(first, count));
      product_.run(choice.algorithm, operands({from, call.weight, call.pass, call.bias, into}),
                   piece);
      result.rows(first, count).copy_from(into.rows(0, count));
    }
  }

  Device device_;
  bool reproducible_;
  std::int64_t all_rows_;
  Product product_;
  Algorithm reference_;
  std::map<std::int64_t, Choice> choices_;  ///< by the number of rows
};

// All products of this process on one device.
class Library {
 public:
  explicit Library(Device device) : device_(device), library_(blas::make_library(device)) {
    trace::recorder().kernels.insert("products: cuBLASLt " + blas::version_text());
    const PurposeScope purpose(Purpose::workspace);
    workspace_ = Tensor::empty({Product::workspace_bytes}, DType::uint8, device);
  }

  Products& products(const Call& call, bool gelu, const Numerics& numerics, std::int64_t all_rows) {
    const DType dtype = call.x.dtype();
    const bool tf32 =
        numerics.tf32 && dtype == DType::float32 && cuda::compute_capability(device_) >= 80;
    const Problem problem{dtype,      tf32,      call.in(),
                          call.out(), call.pass, {!call.bias.empty(), gelu}};
    const std::int64_t reference_rows = numerics.reproducible ? all_rows : call.rows();
    auto& found = products_[{problem, numerics.reproducible, reference_rows}];
    if (found == nullptr) {
      found = std::make_unique<Products>(library_.get(), device_, problem, numerics.reproducible,
                                         reference_rows, workspace_.address_on(device_));
    }
    return *found;
  }

 private:
  Device device_;
  blas::Library library_;
  Tensor workspace_;
  std::map<std::tuple<Problem, bool, std::int64_t>, std::unique_ptr<Products>> products_;
};

Tensor empty_result(const Tensor& x, const Tensor& weight, ops::Pass pass) {
  Shape shape = x.shape();
  shape.back() = weight.shape(pass == ops::Pass::forward ? 0 : 1);
  return Tensor::empty(std::move(shape), x.dtype(), x.device());
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, ops::Pass pass, const Tensor& bias,
              ops::Activation activation, const Numerics& numerics, std::int64_t all_rows) {
  Tensor out = empty_result(x, weight, pass);
  if (out.empty()) return out;
  const Call call{x, weight, pass, bias, out};
  cuda::device_instance<Library>(x.device())
      .products(call, activation == ops::Activation::gelu_tanh, numerics, all_rows)
      .run(call);
  return activation == ops::Activation::silu ? silu(out) : out;
}

std::vector<ProductTiming> time_products(const Tensor& x, const Tensor& weight,
                                         const Numerics& numerics, std::int64_t all_rows) {
  constexpr ops::Pass pass = ops::Pass::forward;
  Tensor out = empty_result(x, weight, pass);
  const Call call{x, weight, pass, {}, out};
  std::vector<ProductTiming> timings;
  for (const auto& [algorithm, timing] : cuda::device_instance<Library>(x.device())
                                             .products(call, false, numerics, all_rows)
                                             .measure(call)) {
    timings.push_back(timing);
  }
  return timings;
}

}  // namespace reelmesh::gpu
