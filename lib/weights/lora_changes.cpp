#include "weights/lora_changes.hpp"

#include <algorithm>
#include <iterator>

#include "base/clones.hpp"
#include "base/error.hpp"
#include "base/nearest.hpp"
#include "weights/json.hpp"
#include "weights/lora_names.hpp"

namespace reelmesh {
namespace {

// A matrix A [rank, columns] is kept in panels [column / width][rank][width], padded with zeros,
// so that a product reads it in the order of memory.
constexpr std::int64_t width = 32;
constexpr std::int64_t rows_at_once = 4;
constexpr std::size_t kept_for_each_lora = 2;

std::int64_t panels_in(std::int64_t columns) { return (columns + width - 1) / width; }

// values[row][column] += scale · Σ over k of up[row][k] · panel[k][column], for the columns of one
// panel. up: [row, rank].
REELMESH_CLONES void add_product(const float* up, const float* panel, std::int64_t rank,
                                 float scale, std::int64_t rows, std::int64_t columns,
                                 float* values, std::int64_t stride) {
  for (std::int64_t first = 0; first < rows; first += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, rows - first);
    // Rows beyond the last are computed as copies of it, and not stored.
    const float* of[rows_at_once];
    for (std::int64_t i = 0; i < rows_at_once; ++i) {
      of[i] = up + (first + std::min(i, count - 1)) * rank;
    }
    float sums[rows_at_once][width] = {};
    for (std::int64_t k = 0; k < rank; ++k) {
      for (std::int64_t i = 0; i < rows_at_once; ++i) {
        const float factor = of[i][k];
        for (std::int64_t c = 0; c < width; ++c) sums[i][c] += factor * panel[k * width + c];
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      float* row = values + (first + i) * stride;
      for (std::int64_t c = 0; c < columns; ++c) row[c] += scale * sums[i][c];
    }
  }
}

// Modules with a weight.
std::vector<std::string> modules_of(const std::vector<std::string>& tensors) {
  constexpr std::string_view weight = ".weight";
  std::vector<std::string> modules;
  for (const std::string& name : tensors) {
    if (name.ends_with(weight)) modules.push_back(name.substr(0, name.size() - weight.size()));
  }
  return modules;
}

// The transformer's modules by the names that the LoRA has for them.
std::map<std::string, std::string> whole_names(const Lora& lora,
                                               const std::vector<std::string>& tensors) {
  std::map<std::string, std::string> modules;
  for (const std::string& module : modules_of(tensors)) {
    const auto [known, added] = modules.emplace(lora.key_of(module), module);
    const auto used = lora.modules().find(known->first);
    require(added || known->second == module || used == lora.modules().end(), Status::data,
            "{}: tensor '{}' fits both '{}' and '{}' of the transformer, expected one of them",
            lora.path().string(), used == lora.modules().end() ? "" : printable(used->second.down),
            printable(known->second), printable(module));
  }
  return modules;
}

/// A tensor of a LoRA, and the name that the transformer lacks.
struct Unfitting {
  std::string tensor, module;
};

[[noreturn]] void fail_unfitting(const Lora& lora, const std::vector<Unfitting>& unfitting,
                                 const std::vector<std::string>& names) {
  constexpr std::size_t shown = 3;
  const std::vector<std::string> modules = modules_of(names);
  std::string text;
  for (std::size_t i = 0; i < std::min(shown, unfitting.size()); ++i) {
    const std::string near = printable(nearest(unfitting[i].module, modules));
    text += fmt::format("{}'{}'{}", i == 0 ? "" : ", ", printable(unfitting[i].tensor),
                        near.empty() ? "" : fmt::format(" (nearest: '{}')", near));
  }
  if (unfitting.size() > shown) text += fmt::format(", and {} more", unfitting.size() - shown);
  fail(Status::data, "{}: the transformer has nothing that fits {}", lora.path().string(), text);
}

Shape without_trailing_ones(Shape shape, std::size_t min_axes) {
  while (shape.size() > min_axes && shape.back() == 1) shape.pop_back();
  return shape;
}

}  // namespace

LoraChanges::LoraChanges(const std::vector<LoraFile>& files, const Find& find,
                         const std::vector<std::string>& names) {
  loras_.reserve(files.size());  // terms point to them
  for (const LoraFile& file : files) {
    loras_.push_back(Lora::open(file.path));
    fit(file, loras_.back(), find, names);
  }
}

void LoraChanges::fit(const LoraFile& file, const Lora& lora, const Find& find,
                      const std::vector<std::string>& names) {
  std::vector<Unfitting> unfitting;
  for (const std::string& other : lora.others()) {
    unfitting.push_back({other, read_lora_name(other).module});
  }
  const std::map<std::string, std::string> whole = whole_names(lora, names);
  const auto name_of = [&](const std::string& key) {
    const auto found = whole.find(key);
    return found == whole.end() ? key : found->second;
  };
  for (const auto& [key, module] : lora.modules()) {
    const std::string name = name_of(key);
    if (find(name + ".weight") == nullptr) unfitting.push_back({module.down, name});
  }
  if (!unfitting.empty()) fail_unfitting(lora, unfitting, names);
  const TensorInfos& tensors = lora.file().tensors();
  const bool changes = file.scale != 0;  // otherwise adding 0 would still change -0
  for (const auto& [key, module] : lora.modules()) {
    const std::string name = name_of(key);
    const auto& [held_as, info] = *find(name + ".weight");
    const Shape &down = tensors.at(module.down).shape, &up = tensors.at(module.up).shape;
    // Convolutions are changed like the matrix [out, all inputs of an output].
    Shape expected = without_trailing_ones(info.shape, 2);
    const std::int64_t out = expected.empty() ? 0 : expected[0];
    if (!expected.empty()) expected[0] = module.rank;
    require(expected.size() >= 2 && without_trailing_ones(down, 2) == expected && up[0] == out,
            Status::data,
            "{}: tensors '{}' {} and '{}' {} do not fit '{}' {}, expected {} and [{}, {}]",
            lora.path().string(), printable(module.down), to_string(down), printable(module.up),
            to_string(up), name + ".weight", to_string(info.shape), to_string(expected), out,
            module.rank);
    const auto scale = static_cast<float>(module.factor * file.scale);
    if (changes) {
      terms_[held_as].push_back({&lora, &module, false, scale, numel(down) / module.rank});
    }
    if (module.bias.empty()) continue;
    const auto* bias = find(name + ".bias");
    require(bias != nullptr && bias->second.shape == Shape{out}, Status::data,
            "{}: tensor '{}' changes a bias, but '{}' has none", lora.path().string(),
            printable(module.bias), name);
    if (changes) terms_[bias->first].push_back({&lora, &module, true, scale, 1});
  }
}

const LoraChanges::Terms* LoraChanges::find(const std::string& name) const {
  const auto found = terms_.find(name);
  return found == terms_.end() ? nullptr : &found->second;
}

LoraChanges::Panels LoraChanges::term_panels(const Term& term) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(kept_, &term, &Kept::term);
  if (found != kept_.end()) return found->panels;
  // Before the conversion, which needs the matrix twice.
  if (kept_.size() >= kept_for_each_lora * loras_.size()) kept_.erase(kept_.begin());
  const std::int64_t rank = term.module->rank, columns = term.columns;
  const Tensor down = term.lora->file().load(term.module->down, DType::float32);
  std::vector<float> panels(static_cast<std::size_t>(panels_in(columns) * rank * width));
  for (std::int64_t k = 0; k < rank; ++k) {
    const float* row = down.data<float>() + k * columns;
    for (std::int64_t first = 0; first < columns; first += width) {
      std::copy_n(row + first, std::min(width, columns - first),
                  panels.data() + first * rank + k * width);
    }
  }
  kept_.push_back({&term, std::make_shared<const std::vector<float>>(std::move(panels))});
  return kept_.back().panels;
}

void LoraChanges::add(const Terms& terms, std::int64_t first, std::int64_t rows, float* values,
                      std::int64_t stride) const {
  std::vector<float> factors;
  for (const Term& term : terms) {
    const std::string& name = term.bias ? term.module->bias : term.module->up;
    const std::int64_t row = term.bias ? 1 : term.module->rank;
    factors.resize(static_cast<std::size_t>(rows * row));
    term.lora->file().read(name, first * row, 1, rows * row, DType::float32, factors.data(),
                           rows * row);
    if (term.bias) {
      for (std::int64_t i = 0; i < rows; ++i) {
        values[i * stride] += term.scale * factors[static_cast<std::size_t>(i)];
      }
      continue;
    }
    const Panels panels = term_panels(term);
    for (std::int64_t column = 0; column < term.columns; column += width) {
      add_product(factors.data(), panels->data() + column * row, row, term.scale, rows,
                  std::min(width, term.columns - column), values + column, stride);
    }
  }
}

LoraMemory lora_memory(std::int64_t columns, std::int64_t rank) {
  // Matrices A that are kept, and one that is being converted.
  const std::int64_t matrices = static_cast<std::int64_t>(kept_for_each_lora) + 1;
  return {matrices * panels_in(columns) * width * rank * size_of(DType::float32),
          std::int64_t{2} << 20};  // rows in float32, and their rows of B
}

LoraMemory operator+(const LoraMemory& a, const LoraMemory& b) {
  return {a.shared + b.shared, std::max(a.per_thread, b.per_thread)};
}

LoraMemory lora_memory(const std::vector<LoraFile>& files) {
  LoraMemory memory;
  for (const LoraFile& file : files) {
    const Lora lora = Lora::open(file.path);
    LoraMemory largest;
    for (const auto& [name, module] : lora.modules()) {
      const std::int64_t columns = numel(lora.file().tensors().at(module.down).shape) / module.rank;
      const LoraMemory own = lora_memory(columns, module.rank);
      if (own.shared >= largest.shared) largest = own;
    }
    memory = memory + largest;
  }
  return memory;
}

}  // namespace reelmesh
