#include "train/parameters.hpp"

#include <algorithm>
#include <cmath>

#include "layout/relayout.hpp"
#include "models/common/random_weights.hpp"
#include "ops/exact_sum.hpp"
#include "weights/lora.hpp"

namespace reelmesh::train {

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

Parameters::Parameters(const comm::Group& group, const std::vector<LoraTarget>& targets,
                       const TokenColumns& columns, const TrainSettings& settings, Device host)
    : group_(group), columns_(columns), settings_(settings) {
  std::int64_t size = 0;
  const std::int64_t rank = settings.lora.rank;
  for (const LoraTarget& target : targets) {
    for (const bool down : {true, false}) {
      Matrix& matrix = matrices_.emplace_back();
      matrix.name = target.module + (down ? ".lora_A" : ".lora_B");
      matrix.columns = down ? target.in : target.out;
      matrix.first = size;
      size += rank * columns_.own_columns(matrix.columns).count;
    }
  }
  values_ = Tensor::zeros({size}, DType::float32, host);
  gradients_ = Tensor::zeros({size}, DType::float32, host);
  const std::int64_t moments = moments_of(settings.optimizer) > 0 ? size : 0;
  first_ = Tensor::zeros({moments}, DType::float32, host);
  second_ = Tensor::zeros({moments}, DType::float32, host);
  if (host.only_shapes) return;
  if (settings.lora.init.empty()) {
    draw();
  } else {
    read(targets);
  }
}

void Parameters::set(const Matrix& matrix, const Tensor& whole) {
  const Box box = own_box_of(matrix, group_.rank());
  Tensor own = values_.rows(matrix.first, box.numel()).reshape(box.extent);
  copy_box(box, whole, whole_box(whole.shape()), own, box);
}

void Parameters::draw() {
  for (std::size_t i = 0; i < matrices_.size(); i += 2) {  // B stays zero
    const Matrix& matrix = matrices_[i];
    Tensor whole = Tensor::empty({settings_.lora.rank, matrix.columns}, DType::float32);
    fill_uniform(whole, matrix.name, settings_.seed,
                 static_cast<float>(1 / std::sqrt(static_cast<double>(matrix.columns))));
    set(matrix, whole);
  }
}

void Parameters::read(const std::vector<LoraTarget>& targets) {
  const Lora lora = Lora::open(settings_.lora.init);
  const std::string where = lora.path().string();
  require(lora.modules().size() == targets.size(), Status::data,
          "{}: found a LoRA of {} modules, expected {}: those that lora.targets names", where,
          lora.modules().size(), targets.size());
  const auto rank = static_cast<double>(settings_.lora.rank);
  const double factor = settings_.lora.alpha.value_or(rank) / rank;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto found = lora.modules().find(targets[i].module);
    require(found != lora.modules().end(), Status::data,
            "{}: found no module '{}', which lora.targets names", where, targets[i].module);
    const LoraModule& module = found->second;
    require(module.rank == settings_.lora.rank, Status::data,
            "{}: module '{}' has rank {}, expected lora.rank = {}", where, targets[i].module,
            module.rank, settings_.lora.rank);
    const Tensor down = lora.file().load(module.down, DType::float32);
    Tensor up = transposed(lora.file().load(module.up, DType::float32));
    require(down.shape() == Shape{module.rank, targets[i].in} &&
                up.shape() == Shape{module.rank, targets[i].out},
            Status::data,
            "{}: module '{}' changes a layer of {} inputs and {} outputs, expected "
            "{} and {}",
            where, targets[i].module, down.shape(1), up.shape(1), targets[i].in, targets[i].out);
    // B is trained for this training's factor.
    const auto scale = static_cast<float>(module.factor / factor);
    for (float& value : up.span<float>()) value *= scale;
    set(matrices_[2 * i], down);
    set(matrices_[2 * i + 1], up);
  }
}

Box Parameters::own_box_of(const Matrix& matrix, int rank) const {
  const TokenColumns::Range range = columns_.columns(matrix.columns, rank);
  return {{0, range.begin}, {settings_.lora.rank, range.count}};
}

Tensor Parameters::flat(const std::vector<LoraValues>& gradient) const {
  expect(2 * gradient.size() == matrices_.size(), "gradients of {} targets", gradient.size());
  Tensor all = empty_gradient();
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const Tensor& part = i % 2 == 0 ? gradient[i / 2].down : gradient[i / 2].up;
    all.rows(matrices_[i].first, part.numel()).copy_from(part.reshape({part.numel()}));
  }
  return all;
}

Tensor Parameters::empty_gradient() const {
  return Tensor::empty({size()}, DType::float32, values_.device());
}

void add_to(Tensor& sum, const Tensor& gradient) {
  if (sum.device().only_shapes) return;
  const std::span<const float> from = gradient.span<float>();
  const std::span<float> into = sum.span<float>();
  for (std::size_t i = 0; i < into.size(); ++i) into[i] += from[i];
}

void Parameters::add(const Tensor& gradient) { add_to(gradients_, gradient); }

double Parameters::gradient_norm_together(std::int64_t samples) const {
  // Scaled by a power of two, so that no square is out of range or lost in rounding.
  float largest = 0;
  bool finite = true;
  for (const float g : std::as_const(gradients_).span<float>()) {
    finite = finite && std::isfinite(g);
    largest = std::max(largest, std::abs(g));
  }
  const double all_largest = group_.max(static_cast<double>(largest));
  if (group_.max(std::int64_t{finite ? 0 : 1}) > 0) return std::nan("");
  if (all_largest == 0) return 0;
  const int exponent = std::ilogb(all_largest) + 1;
  const double scale = std::ldexp(1.0, -exponent);
  // The columns of a unit, which no cut divides, are added first, so that there are fewer terms.
  const std::int64_t unit = columns_.unit();
  ops::ExactSum sum;
  for (const Matrix& matrix : matrices_) {
    const std::int64_t count = own_box_of(matrix, group_.rank()).numel();
    const float* g = gradients_.data<float>() + matrix.first;
    for (std::int64_t i = 0; i < count; i += unit) {
      double squares = 0;
      for (std::int64_t j = i; j < i + unit; ++j) {
        const double scaled = double{g[j]} * scale;
        squares += scaled * scaled;
      }
      sum.add(squares);
    }
  }
  std::vector<std::int64_t> parts{sum.high, sum.middle, sum.low, sum.lost};
  group_.sum(parts);
  const ops::ExactSum all{parts[0], parts[1], parts[2], parts[3]};
  return std::ldexp(std::sqrt(all.value()), exponent) / static_cast<double>(samples);
}

void Parameters::update(std::int64_t step, double rate, double factor, std::int64_t samples) {
  if (values_.device().only_shapes) return;
  train::update(values_.span<float>(), std::as_const(gradients_).span<float>(),
                first_.span<float>(), second_.span<float>(),
                {.step = step + 1, .rate = rate, .factor = factor / static_cast<double>(samples)},
                settings_);
  std::ranges::fill(gradients_.span<float>(), 0.0F);
}

std::vector<LoraValues> Parameters::all_together() const {
  std::vector<Move> moves;
  std::vector<Tensor> sources, targets;
  const std::int64_t rank = settings_.lora.rank;
  std::int64_t size = 0, first = 0;
  for (const Matrix& matrix : matrices_) size += rank * matrix.columns;
  const Tensor whole = Tensor::empty({size}, DType::float32, values_.device());
  for (const Matrix& matrix : matrices_) {
    std::vector<Box> boxes;
    for (int r = 0; r < group_.size(); ++r) boxes.push_back(own_box_of(matrix, r));
    const Layout cut({rank, matrix.columns}, std::move(boxes));
    const Box own = own_box(cut, group_);
    moves.push_back({cut, Layout::replicated(cut.global(), group_.size())});
    sources.push_back(values_.rows(matrix.first, own.numel()).reshape(own.extent));
    targets.push_back(whole.rows(first, rank * matrix.columns).reshape(cut.global()));
    first += rank * matrix.columns;
  }
  Exchange(group_, moves).run(sources, targets);
  std::vector<LoraValues> values;
  for (std::size_t i = 0; i < targets.size(); i += 2) {
    values.push_back({targets[i], targets[i + 1]});
  }
  return values;
}

std::vector<TrainingArray> Parameters::arrays(const comm::Group& world,
                                              const std::vector<int>& ranks) {
  std::vector<TrainingArray> result;
  const auto add = [&](const Matrix& matrix, const char* what, const Tensor& of) {
    const Shape global{settings_.lora.rank, matrix.columns};
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
    if (moments_of(settings_.optimizer) == 0) continue;
    add(matrix, ".first_moment", first_);
    add(matrix, ".second_moment", second_);
  }
  return result;
}

}  // namespace reelmesh::train
