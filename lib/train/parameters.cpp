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
#include "ops/pointwise.hpp"
#include "tensor/ledger.hpp"
#include "weights/lora.hpp"

namespace reelmesh::train {
namespace {

constexpr std::int64_t gradient_elements_of_task = std::int64_t{1} << 16;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

struct RowRange {
  std::int64_t first = 0, count = 0;
};

// Rows of a part, whose first element is number `first`, among elements [begin, end), which divide
// no row.
RowRange rows_between(std::int64_t first, const Box& part, std::int64_t begin, std::int64_t end) {
  const std::int64_t columns = part.extent[1], last = first + part.numel();
  if (columns == 0) return {};
  begin = std::clamp(begin, first, last);
  end = std::clamp(end, first, last);
  return {(begin - first) / columns, (end - begin) / columns};
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

Parameters::Parameters(const comm::Group& group, const comm::Group& peers, const Trainable& model,
                       const TokenColumns& columns, const TrainSettings& settings, Device host)
    : group_(group), peers_(peers), columns_(columns), settings_(settings) {
  std::int64_t size = 0;
  for (const TrainedMatrix& matrix : model.matrices()) {
    matrices_.push_back({matrix, size});
    size += matrix.box(columns_, group.rank()).numel();
  }
  borders_ = borders(group.rank());
  values_ = Tensor::zeros({size}, DType::float32, host);
  gradients_ = Tensor::zeros({own_size()}, DType::float32, host);
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    const bool is_kept = i < moment_names().size();
    moments_[i] = Tensor::zeros({is_kept ? own_size() : 0}, DType::float32, host);
  }
  mean_ = Tensor::zeros({settings.ema ? own_size() : 0}, DType::float32, host);
  if (host.only_shapes) return;
  if (model.targets().empty()) {
    for (std::size_t i = 0; i < matrices_.size(); ++i) set(matrices_[i], model.initial(i));
  } else if (settings.lora.init.empty()) {
    draw();
  } else {
    read(model.targets());
  }
  if (settings.ema) mean_.copy_from(values_.rows(begin(), own_size()));
}

std::vector<std::int64_t> Parameters::borders(int rank) const {
  std::vector<Box> parts;
  for (const Matrix& matrix : matrices_) parts.push_back(box_of(matrix, rank));
  return replica_borders(parts, peers_.size());
}

void Parameters::set(const Matrix& matrix, const Tensor& whole) {
  const Box box = own_box_of(matrix);
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

Tensor Parameters::empty_gradient() const {
  return Tensor::empty({size()}, DType::float32, values_.device());
}

void add_to(Tensor& sum, const Tensor& gradient) {
  if (sum.device().only_shapes) return;
  ops::parallel_parts(
      sum.numel(), gradient_elements_of_task, [&](std::int64_t first, std::int64_t count) {
        ops::add_elements(sum.data<float>() + first, gradient.data<float>() + first, count);
      });
}

Tensor Parameters::part(const Tensor& gradient, std::size_t matrix) const {
  const Matrix& found = matrices_.at(matrix);
  return gradient.rows(found.first, own_box_of(found).numel());
}

void Parameters::add_together(const Tensor& own, int replicas) {
  const auto elements = [&](int peer) {
    const auto at = static_cast<std::size_t>(peer);
    return own.rows(borders_[at], borders_[at + 1] - borders_[at]);
  };
  std::vector<Tensor> gradients;
  std::vector<comm::Message> sends, receives;
  for (int peer = 0; peer < peers_.size(); ++peer) {
    const bool is_own = peer == peers_.rank();
    if (!is_own && peers_.rank() < replicas) sends.push_back({peer, elements(peer)});
    if (peer >= replicas) continue;
    gradients.push_back(is_own ? elements(peer)
                               : Tensor::empty({own_size()}, DType::float32, values_.device()));
    if (!is_own) receives.push_back({peer, gradients.back()});
  }
  peers_.exchange(sends, receives);
  for (const Tensor& of_sample : gradients) add_to(gradients_, of_sample);
}

void Parameters::add(std::size_t matrix, const Tensor& gradient) {
  expect(peers_.size() == 1, "a gradient of one replica of {} is added alone", peers_.size());
  Tensor sum = part(gradients_, matrix);
  expect(gradient.numel() == sum.numel(), "gradient {} of {}, of which this rank has {} elements",
         gradient.shape(), matrices_[matrix].name, sum.numel());
  add_to(sum, gradient);
}

double Parameters::gradient_norm_together(std::int64_t samples) const {
  // Scaled by a power of two, so that no square is out of range or lost in rounding.
  const std::int64_t elements = own_size(),
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
  const double all_largest = group_.max(peers_.max(static_cast<double>(largest)));
  if (group_.max(peers_.max(std::int64_t{finite ? 0 : 1})) > 0) return std::nan("");
  if (all_largest == 0) return 0;
  const int exponent = std::ilogb(all_largest) + 1;
  const double scale = std::ldexp(1.0, -exponent);
  // The columns of a unit, which no cut divides, are added first, so that there are fewer terms.
  const std::int64_t unit = columns_.unit();
  ops::ExactSum sum;
  for (const Matrix& matrix : matrices_) {
    const Box own = own_box_of(matrix);
    const std::int64_t columns = own.extent[1];
    const RowRange added = rows_between(matrix.first, own, begin(), begin() + own_size());
    if (added.count == 0) continue;
    const std::int64_t rows = std::max<std::int64_t>(1, gradient_elements_of_task / columns);
    std::vector<ops::ExactSum> sums(static_cast<std::size_t>((added.count + rows - 1) / rows));
    ops::parallel_for(std::ssize(sums), 1, [&](std::int64_t task) {
      const std::int64_t end = added.first + std::min((task + 1) * rows, added.count);
      for (std::int64_t row = added.first + task * rows; row < end; ++row) {
        const float* g = gradients_.data<float>() + matrix.first - begin() + row * columns;
        for (std::int64_t i = 0; i < columns; i += unit) {
          sums[static_cast<std::size_t>(task)].add(
              sum_of_squares(g + i, std::min(unit, columns - i), scale));
        }
      }
    });
    for (const ops::ExactSum& of_rows : sums) sum.add(of_rows.carried());
  }
  std::vector<std::int64_t> parts{sum.high, sum.middle, sum.low, sum.lost};
  peers_.sum(parts);
  group_.sum(parts);
  const ops::ExactSum all = ops::ExactSum{parts[0], parts[1], parts[2], parts[3]}.carried();
  return std::ldexp(std::sqrt(all.value()), exponent) / static_cast<double>(samples);
}

void Parameters::update_together(std::int64_t step, double rate, double factor,
                                 std::int64_t samples) {
  if (values_.device().only_shapes) {
    // Of values, gradients, moments and means, those that are read and those that are written.
    const std::int64_t moved = 2 + 2 + 2 * std::ssize(moment_names()) + (settings_.ema ? 3 : 0);
    note_moved(moved * own_size() * size_of(DType::float32));
    gather_values_together();
    return;
  }
  Tensor values = values_.rows(begin(), own_size());
  ops::update(*settings_.optimizer, values.span<float>(), gradients_.span<float>(),
              moments_[0].span<float>(), moments_[1].span<float>(),
              {.step = step + 1, .rate = rate, .factor = factor / static_cast<double>(samples)},
              settings_.optimizer_settings);
  if (settings_.ema) {
    ops::parallel_parts(
        own_size(), gradient_elements_of_task, [&](std::int64_t first, std::int64_t count) {
          move_towards(mean_.data<float>() + first, std::as_const(values).data<float>() + first,
                       count, static_cast<float>(1 - *settings_.ema));
        });
  }
  gather_values_together();
}

void Parameters::gather_values_together() { gather(values_.rows(begin(), own_size()), 0, values_); }

void Parameters::gather(const Tensor& own, std::int64_t begin, Tensor& all) const {
  const std::int64_t end = begin + all.numel();
  const auto wanted = [&](int peer) {
    const auto at = static_cast<std::size_t>(peer);
    const std::int64_t first = std::clamp(borders_[at], begin, end);
    return std::pair(first, std::clamp(borders_[at + 1], begin, end) - first);
  };
  const auto [own_first, own_count] = wanted(peers_.rank());
  const Tensor part = own.rows(own_count > 0 ? own_first - this->begin() : 0, own_count);
  std::vector<comm::Message> sends, receives;
  for (int peer = 0; peer < peers_.size(); ++peer) {
    const auto [first, count] = wanted(peer);
    Tensor target = all.rows(first - begin, count);
    if (peer != peers_.rank()) {
      sends.push_back({peer, part});
      receives.push_back({peer, target});
    } else if (!all.device().only_shapes && target.raw() != part.raw()) {
      target.copy_from(part);
    }
  }
  peers_.exchange(sends, receives);
}

std::vector<Tensor> Parameters::results_together(std::size_t first, std::size_t count) const {
  if (!settings_.ema) return values_together(first, count);
  const auto begin_of = [&](std::size_t i) {
    return i < matrices_.size() ? matrices_[i].first : size();
  };
  const std::int64_t begin = begin_of(first);
  Tensor mean = Tensor::empty({begin_of(first + count) - begin}, DType::float32, values_.device());
  gather(mean_, begin, mean);
  return whole_together(mean, begin, first, count);
}

std::vector<Tensor> Parameters::whole_together(const Tensor& parts, std::int64_t begin,
                                               std::size_t first, std::size_t count) const {
  std::vector<Move> moves;
  std::vector<Tensor> sources, targets;
  const auto own_part = [&](const Matrix& matrix) {
    const Shape extent = own_box_of(matrix).extent;
    return parts.rows(matrix.first - begin, numel(extent)).reshape(extent);
  };
  if (group_.size() == 1) {
    for (std::size_t i = first; i < first + count; ++i) targets.push_back(own_part(matrices_[i]));
    return targets;
  }
  const std::span<const Matrix> wanted = std::span(matrices_).subspan(first, count);
  std::int64_t size = 0, at = 0;
  for (const Matrix& matrix : wanted) size += matrix.rows * matrix.columns;
  const Tensor whole = Tensor::empty({size}, DType::float32, values_.device());
  for (const Matrix& matrix : wanted) {
    const Layout cut = matrix.layout(columns_, group_.size());
    moves.push_back({cut, Layout::replicated(cut.global(), group_.size())});
    sources.push_back(own_part(matrix));
    const std::int64_t elements = numel(cut.global());
    targets.push_back(whole.rows(at, elements).reshape(cut.global()));
    at += elements;
  }
  Exchange(group_, moves).run(sources, targets);
  return targets;
}

std::vector<TrainingArray> Parameters::arrays(const comm::Group& trainers) {
  const int ranks = group_.size();
  expect(trainers.size() == ranks * peers_.size(), "{} ranks train in {} replicas of {}",
         trainers.size(), peers_.size(), ranks);
  std::vector<TrainingArray> result;
  std::vector<std::int64_t> firsts(index(ranks));  // of each rank's part of the next matrix
  std::vector<std::vector<std::int64_t>> all_borders;
  for (int rank = 0; rank < ranks; ++rank) all_borders.push_back(borders(rank));
  for (const Matrix& matrix : matrices_) {
    std::vector<Box> boxes;
    for (int replica = 0; replica < peers_.size(); ++replica) {
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<std::int64_t>& of_rank = all_borders[index(rank)];
        Box box = box_of(matrix, rank);
        const RowRange rows = rows_between(firsts[index(rank)], box, of_rank[index(replica)],
                                           of_rank[index(replica) + 1]);
        box.offset[0] += rows.first;
        box.extent[0] = rows.count;
        boxes.push_back(rows.count > 0 ? box : Box{{0, 0}, {0, 0}});
      }
    }
    const Layout layout({matrix.rows, matrix.columns}, std::move(boxes));
    const Box own = own_box(layout, trainers);
    const auto add = [&](const std::string& what, const Tensor& of, std::int64_t first) {
      const Tensor local = own.empty() ? Tensor::empty(own.extent, DType::float32)
                                       : of.rows(first, own.numel()).reshape(own.extent);
      result.push_back({matrix.name + what, {local, layout, trainers}});
    };
    const std::int64_t first = std::max(matrix.first, begin());
    add("", values_, first);
    if (settings_.ema) add(".mean", mean_, first - begin());
    for (std::size_t i = 0; i < moment_names().size(); ++i) {
      add(fmt::format(".{}", moment_names()[i]), moments_[i], first - begin());
    }
    for (int rank = 0; rank < ranks; ++rank) {
      firsts[index(rank)] += box_of(matrix, rank).numel();
    }
  }
  return result;
}

}  // namespace reelmesh::train
