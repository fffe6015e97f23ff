#include "train/parameters.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/clones.hpp"
#include "base/log.hpp"
#include "layout/relayout.hpp"
#include "models/common/random_weights.hpp"
#include "ops/exact_sum.hpp"
#include "ops/parallel.hpp"
#include "tensor/ledger.hpp"
#include "weights/lora.hpp"

namespace reelmesh::train {
namespace {

constexpr std::int64_t gradient_elements_of_task = std::int64_t{1} << 16;

REELMESH_CLONES void add_elements(float* into, const float* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) into[i] += from[i];
}

REELMESH_CLONES void move_towards(float* mean, const float* values, std::int64_t count,
                                  float share) {
  for (std::int64_t i = 0; i < count; ++i) mean[i] += share * (values[i] - mean[i]);
}

// The largest magnitude; infinite if an element is not finite.
REELMESH_CLONES float largest_magnitude(const float* x, std::int64_t count) {
  std::uint32_t largest = 0;  // the order of bits is that of magnitudes, and then of NaN
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU);
  }
  const auto found = std::bit_cast<float>(largest);
  return std::isfinite(found) ? found : std::numeric_limits<float>::infinity();
}

// The sum of (scale·x)² in float64, with eight partial sums.
REELMESH_CLONES double sum_of_squares(const float* x, std::int64_t count, double scale) {
  constexpr std::int64_t lanes = 8;
  double sums[lanes] = {};
  const std::int64_t even = count / lanes * lanes;
  for (std::int64_t i = 0; i < even; i += lanes) {
    for (std::int64_t j = 0; j < lanes; ++j) {
      const double scaled = double{x[i + j]} * scale;
      sums[j] += scaled * scaled;
    }
  }
  double sum =
      ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  for (std::int64_t i = even; i < count; ++i) {
    const double scaled = double{x[i]} * scale;
    sum += scaled * scaled;
  }
  return sum;
}

}  // namespace

Tensor transposed(const Tensor& x) {
  const std::int64_t rows = x.shape(0), columns = x.shape(1);
  Tensor out = Tensor::empty({columns, rows}, DType::float32);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      out.data<float>()[column * rows + row] = x.data<float>()[row * columns + column];
    }
  }
  return out;
}

Parameters::Parameters(const comm::Group& group, const Trainable& model,
                       const TokenColumns& columns, const TrainSettings& settings, Device host)
    : group_(group), columns_(columns), settings_(settings) {
  std::int64_t size = 0;
  for (const TrainedMatrix& matrix : model.matrices()) {
    matrices_.push_back({matrix, size});
    size += matrix.box(columns_, group.rank()).numel();
  }
  values_ = Tensor::zeros({size}, DType::float32, host);
  gradients_ = Tensor::zeros({size}, DType::float32, host);
  const std::int64_t moments = moments_of(settings.optimizer) > 0 ? size : 0;
  first_ = Tensor::zeros({moments}, DType::float32, host);
  second_ = Tensor::zeros({moments}, DType::float32, host);
  mean_ = Tensor::zeros({settings.ema ? size : 0}, DType::float32, host);
  if (host.only_shapes) return;
  if (model.targets().empty()) {
    for (std::size_t i = 0; i < matrices_.size(); ++i) set(matrices_[i], model.initial(i));
  } else if (settings.lora.init.empty()) {
    draw();
  } else {
    read(model.targets());
  }
  if (settings.ema) mean_.copy_from(values_);
}

void Parameters::set(const Matrix& matrix, const Tensor& whole) {
  const Box box = own_box_of(matrix, group_.rank());
  Tensor own = values_.rows(matrix.first, box.numel()).reshape(box.extent);
  copy_box(box, whole, whole_box(whole.shape()), own, box);
}

void Parameters::draw() {
  for (std::size_t i = 0; i < matrices_.size(); i += 2) {  // B stays zero
    const Matrix& matrix = matrices_[i];
    Tensor whole = Tensor::empty({matrix.rows, matrix.columns}, DType::float32);
    fill_uniform(whole, matrix.name, settings_.seed,
                 static_cast<float>(1 / std::sqrt(static_cast<double>(matrix.columns))));
    set(matrix, whole);
  }
}

void Parameters::read(const std::vector<LoraTarget>& targets) {
  const Lora lora = Lora::open(settings_.lora.init);
  if (const std::string text = lora.left_out(); !text.empty()) log::warning("{}", text);
  const std::string where = lora.path().string();
  require(lora.modules().size() == targets.size(), Status::data,
          "{}: found a LoRA of {} modules, expected {}: those that lora.targets names", where,
          lora.modules().size(), targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto found = lora.modules().find(lora.key_of(targets[i].module));
    require(found != lora.modules().end(), Status::data,
            "{}: found no module '{}', which lora.targets names", where, targets[i].module);
    const LoraModule& module = found->second;
    require(module.rank == targets[i].rank, Status::data,
            "{}: module '{}' has rank {}, expected {}, as lora.rank and lora.rank-pattern say",
            where, targets[i].module, module.rank, targets[i].rank);
    const Tensor down = lora.file().load(module.down, DType::float32);
    Tensor up = transposed(lora.file().load(module.up, DType::float32));
    require(down.shape() == Shape{module.rank, targets[i].in} &&
                up.shape() == Shape{module.rank, targets[i].out},
            Status::data,
            "{}: module '{}' changes a layer of {} inputs and {} outputs, expected "
            "{} and {}",
            where, targets[i].module, down.shape(1), up.shape(1), targets[i].in, targets[i].out);
    // B is trained for this training's factor.
    const auto scale = static_cast<float>(module.factor / targets[i].factor());
    for (float& value : up.span<float>()) value *= scale;
    set(matrices_[2 * i], down);
    set(matrices_[2 * i + 1], up);
  }
}

Box Parameters::own_box_of(const Matrix& matrix, int rank) const {
  return matrix.box(columns_, rank);
}

Tensor Parameters::empty_gradient() const {
  return Tensor::empty({size()}, DType::float32, values_.device());
}

void add_to(Tensor& sum, const Tensor& gradient) {
  if (sum.device().only_shapes) return;
  ops::parallel_parts(
      sum.numel(), gradient_elements_of_task, [&](std::int64_t first, std::int64_t count) {
        add_elements(sum.data<float>() + first, gradient.data<float>() + first, count);
      });
}

Tensor Parameters::part(const Tensor& gradient, std::size_t matrix) const {
  const Matrix& found = matrices_.at(matrix);
  return gradient.rows(found.first, own_box_of(found, group_.rank()).numel());
}

void Parameters::add(const Tensor& gradient) { add_to(gradients_, gradient); }

void Parameters::add(std::size_t matrix, const Tensor& gradient) {
  Tensor sum = part(gradients_, matrix);
  expect(gradient.numel() == sum.numel(), "gradient {} of {}, of which this rank has {} elements",
         gradient.shape(), matrices_[matrix].name, sum.numel());
  add_to(sum, gradient);
}

double Parameters::gradient_norm_together(std::int64_t samples) const {
  // Scaled by a power of two, so that no square is out of range or lost in rounding.
  const std::int64_t elements = size(),
                     tasks = (elements + gradient_elements_of_task - 1) / gradient_elements_of_task;
  std::vector<float> largest_of(static_cast<std::size_t>(tasks));
  ops::parallel_parts(elements, gradient_elements_of_task,
                      [&](std::int64_t first, std::int64_t count) {
                        largest_of[static_cast<std::size_t>(first / gradient_elements_of_task)] =
                            largest_magnitude(gradients_.data<float>() + first, count);
                      });
  float largest = 0;
  for (const float of_task : largest_of) largest = std::max(largest, of_task);
  const bool finite = std::isfinite(largest);
  const double all_largest = group_.max(static_cast<double>(largest));
  if (group_.max(std::int64_t{finite ? 0 : 1}) > 0) return std::nan("");
  if (all_largest == 0) return 0;
  const int exponent = std::ilogb(all_largest) + 1;
  const double scale = std::ldexp(1.0, -exponent);
  // The columns of a unit, which no cut divides, are added first, so that there are fewer terms.
  const std::int64_t unit = columns_.unit();
  ops::ExactSum sum;
  for (const Matrix& matrix : matrices_) {
    const Shape& own = own_box_of(matrix, group_.rank()).extent;
    const std::int64_t columns = own[1];
    if (columns == 0) continue;
    const std::int64_t rows = std::max<std::int64_t>(1, gradient_elements_of_task / columns);
    std::vector<ops::ExactSum> sums(static_cast<std::size_t>((own[0] + rows - 1) / rows));
    ops::parallel_for(std::ssize(sums), 1, [&](std::int64_t task) {
      const std::int64_t end = std::min((task + 1) * rows, own[0]);
      for (std::int64_t row = task * rows; row < end; ++row) {
        const float* g = gradients_.data<float>() + matrix.first + row * columns;
        for (std::int64_t i = 0; i < columns; i += unit) {
          sums[static_cast<std::size_t>(task)].add(
              sum_of_squares(g + i, std::min(unit, columns - i), scale));
        }
      }
    });
    for (const ops::ExactSum& of_rows : sums) sum.add(of_rows.carried());
  }
  std::vector<std::int64_t> parts{sum.high, sum.middle, sum.low, sum.lost};
  group_.sum(parts);
  const ops::ExactSum all = ops::ExactSum{parts[0], parts[1], parts[2], parts[3]}.carried();
  return std::ldexp(std::sqrt(all.value()), exponent) / static_cast<double>(samples);
}

void Parameters::update(std::int64_t step, double rate, double factor, std::int64_t samples) {
  if (values_.device().only_shapes) {
    // Of values, gradients, moments and means, those that are read and those that are written.
    const int moved = 2 + 2 + 2 * moments_of(settings_.optimizer) + (settings_.ema ? 3 : 0);
    note_moved(moved * size() * size_of(DType::float32));
    return;
  }
  train::update(values_.span<float>(), std::as_const(gradients_).span<float>(),
                first_.span<float>(), second_.span<float>(),
                {.step = step + 1, .rate = rate, .factor = factor / static_cast<double>(samples)},
                settings_);
  ops::parallel_parts(
      size(), gradient_elements_of_task, [&](std::int64_t first, std::int64_t count) {
        std::fill_n(gradients_.data<float>() + first, count, 0.0F);
        if (!settings_.ema) return;
        move_towards(mean_.data<float>() + first, std::as_const(values_).data<float>() + first,
                     count, static_cast<float>(1 - *settings_.ema));
      });
}

std::vector<Tensor> Parameters::whole_together(const Tensor& parts, std::size_t first,
                                               std::size_t count) const {
  std::vector<Move> moves;
  std::vector<Tensor> sources, targets;
  if (group_.size() == 1) {
    for (std::size_t i = first; i < first + count; ++i) {
      targets.push_back(part(parts, i).reshape({matrices_[i].rows, matrices_[i].columns}));
    }
    return targets;
  }
  const std::span<const Matrix> wanted = std::span(matrices_).subspan(first, count);
  std::int64_t size = 0, at = 0;
  for (const Matrix& matrix : wanted) size += matrix.rows * matrix.columns;
  const Tensor whole = Tensor::empty({size}, DType::float32, values_.device());
  for (const Matrix& matrix : wanted) {
    const Layout cut = matrix.layout(columns_, group_.size());
    const Box own = own_box(cut, group_);
    moves.push_back({cut, Layout::replicated(cut.global(), group_.size())});
    sources.push_back(parts.rows(matrix.first, own.numel()).reshape(own.extent));
    const std::int64_t elements = numel(cut.global());
    targets.push_back(whole.rows(at, elements).reshape(cut.global()));
    at += elements;
  }
  Exchange(group_, moves).run(sources, targets);
  return targets;
}

std::vector<TrainingArray> Parameters::arrays(const comm::Group& world,
                                              const std::vector<int>& ranks) {
  std::vector<TrainingArray> result;
  const auto add = [&](const Matrix& matrix, const char* what, const Tensor& of) {
    const Shape global{matrix.rows, matrix.columns};
    std::vector<Box> boxes(static_cast<std::size_t>(world.size()), Box{{0, 0}, {0, 0}});
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      boxes[static_cast<std::size_t>(ranks[i])] = own_box_of(matrix, static_cast<int>(i));
    }
    const Layout layout(global, std::move(boxes));
    const Box own = own_box(layout, world);
    const Tensor local = own.empty() ? Tensor::empty(own.extent, DType::float32)
                                     : of.rows(matrix.first, own.numel()).reshape(own.extent);
    result.push_back({matrix.name + what, {local, layout, world}});
  };
  for (const Matrix& matrix : matrices_) {
    add(matrix, "", values_);
    if (settings_.ema) add(matrix, ".mean", mean_);
    if (moments_of(settings_.optimizer) == 0) continue;
    add(matrix, ".first_moment", first_);
    add(matrix, ".second_moment", second_);
  }
  return result;
}

}  // namespace reelmesh::train
