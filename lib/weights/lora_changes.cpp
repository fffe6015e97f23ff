#include "weights/lora_changes.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/clones.hpp"
#include "base/error.hpp"
#include "base/nearest.hpp"
#include "weights/json.hpp"
#include "weights/lora_names.hpp"
#include "weights/names.hpp"

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

constexpr std::string_view weight = ".weight";
constexpr std::string_view original_table = ".modulation";
constexpr std::string_view patches = "patch_embedding";  // of latents, and of what is beside them

std::string without_end(const std::string& name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

// Modules with a weight.
std::vector<std::string> modules_of(const std::vector<std::string>& tensors) {
  std::vector<std::string> modules;
  for (const std::string& name : tensors) {
    if (name.ends_with(weight)) modules.push_back(without_end(name, weight));
  }
  return modules;
}

// What of the transformer the names of a LoRA stand for.
struct WholeNames {
  std::map<std::string, std::string> modules;
  std::map<std::string, std::string> tables;  // of blocks: names of tensors
};

// Current names and others, with '_' for '.' if the LoRA's are.
WholeNames whole_names(const Lora& lora, const std::vector<std::string>& tensors) {
  WholeNames whole;
  for (const std::string& tensor : tensors) {
    std::vector<std::string> names = older_names(tensor);
    names.push_back(tensor);
    for (const std::string& name : names) {
      if (name.ends_with(original_table)) {
        whole.tables.emplace(lora.key_of(without_end(name, original_table)), tensor);
      }
      if (!name.ends_with(weight)) continue;
      const std::string module = without_end(tensor, weight);
      const auto [known, added] =
          whole.modules.emplace(lora.key_of(without_end(name, weight)), module);
      const auto used = lora.modules().find(known->first);
      require(added || known->second == module || used == lora.modules().end(), Status::data,
              "{}: tensor '{}' fits both '{}' and '{}' of the transformer, expected one of them",
              lora.path().string(),
              used == lora.modules().end() ? "" : printable(used->second.any()),
              printable(known->second), printable(module));
    }
  }
  return whole;
}

// Whether the transformers of some models of Wan, those that begin from an image, have this module.
bool is_for_images(std::string module) {
  std::ranges::replace(module, '.', '_');
  constexpr std::array<std::string_view, 6> ends{"_attn2_add_k_proj",   "_attn2_add_v_proj",
                                                 "_attn2_norm_added_k", "_cross_attn_k_img",
                                                 "_cross_attn_v_img",   "_cross_attn_norm_k_img"};
  return module.starts_with("condition_embedder_image_embedder_") ||
         module.starts_with("img_emb_") ||
         std::ranges::any_of(ends, [&](std::string_view end) { return module.ends_with(end); });
}

// A tensor of a LoRA, and the name that the transformer lacks.
using Unfitting = std::pair<std::string, std::string>;

[[noreturn]] void fail_unfitting(const Lora& lora, const std::vector<Unfitting>& unfitting,
                                 const std::vector<std::string>& names) {
  constexpr std::size_t shown = 3;
  const std::vector<std::string> modules = modules_of(names);
  std::string text;
  for (std::size_t i = 0; i < std::min(shown, unfitting.size()); ++i) {
    const std::string near = printable(nearest(unfitting[i].second, modules));
    text += fmt::format("{}'{}'{}", i == 0 ? "" : ", ", printable(unfitting[i].first),
                        near.empty() ? "" : fmt::format(" (nearest: '{}')", near));
  }
  if (unfitting.size() > shown) text += fmt::format(", and {} more", unfitting.size() - shown);
  fail(Status::data, "{}: the transformer has nothing that fits {}", lora.path().string(), text);
}

Shape without_trailing_ones(Shape shape, std::size_t min_axes) {
  while (shape.size() > min_axes && shape.back() == 1) shape.pop_back();
  return shape;
}

bool same_shape(const Shape& a, const Shape& b) {
  return without_trailing_ones(a, 0) == without_trailing_ones(b, 0);
}

}  // namespace

// Finds the tensors that a LoRA changes.
class LoraChanges::Fitting {
 public:
  Fitting(LoraChanges& changes, const LoraFile& file, const Lora& lora, const Find& find,
          const std::vector<std::string>& names)
      : changes_(changes), file_(file), lora_(lora), find_(find), names_(names) {}

  void fit() {
    for (const std::string& other : lora_.others()) {
      unfitting_.push_back({other, read_lora_name(other).module});
    }
    const WholeNames whole = whole_names(lora_, names_);
    for (const auto& [key, module] : lora_.modules()) {
      if (!module.table_difference.empty()) {
        const auto table = whole.tables.find(key);
        add_difference(module, module.table_difference,
                       table == whole.tables.end() ? nullptr : find_(table->second), key);
      }
      if (module.rank == 0 && module.difference.empty() && module.bias_difference.empty()) continue;
      if (const auto known = whole.modules.find(key); known != whole.modules.end()) {
        const std::string& name = known->second;
        add_differences(module, name);
        if (module.rank > 0) add_product(module, name);
      } else if (is_for_images(key)) {
        of_images_.push_back(key);
      } else {
        unfitting_.push_back(
            {module.any(), without_end(current_name(key + std::string(weight)), weight)});
      }
    }
    if (!unfitting_.empty()) fail_unfitting(lora_, unfitting_, names_);
    if (!of_images_.empty()) {
      changes_.left_out_.push_back(fmt::format(
          "{}: {} layer{} for images not used, as this transformer has none: {}", path(),
          of_images_.size(), of_images_.size() == 1 ? "" : "s", grouped(of_images_)));
    }
  }

 private:
  std::string path() const { return lora_.path().string(); }
  const Shape& shape(const std::string& tensor) const {
    return lora_.file().tensors().at(tensor).shape;
  }
  static std::string weight_of(const std::string& module) { return module + std::string(weight); }

  void add_term(const std::string& held_as, Term term) {
    if (file_.scale != 0) {  // otherwise adding 0 would still change -0
      changes_.terms_[held_as].push_back(term);
    }
  }

  // changed: the tensor with this name; nullptr: there is none.
  void add_difference(const LoraModule& module, const std::string& added,
                      const TensorInfos::value_type* changed, const std::string& name) {
    if (changed == nullptr) {
      unfitting_.push_back({added, name});
      return;
    }
    require(same_shape(shape(added), changed->second.shape), Status::data,
            "{}: tensor '{}' {} does not fit '{}' {}, expected the same shape", path(),
            printable(added), to_string(shape(added)), name, to_string(changed->second.shape));
    add_term(changed->first, {&lora_, &module, &added, static_cast<float>(file_.scale), 0});
  }

  void add_differences(const LoraModule& module, const std::string& name) {
    const auto* const changed = find_(weight_of(name));
    const std::string& added = module.difference;
    if (name == patches && !added.empty() && !same_shape(shape(added), changed->second.shape)) {
      changes_.left_out_.push_back(fmt::format(
          "{}: tensor '{}' {} is not used, as '{}' has the shape {}: the LoRA was made for a model "
          "with other channels",
          path(), printable(added), to_string(shape(added)), weight_of(name),
          to_string(changed->second.shape)));
      return;
    }
    if (!added.empty()) add_difference(module, added, changed, weight_of(name));
    if (!module.bias_difference.empty()) {
      add_difference(module, module.bias_difference, find_(name + ".bias"), name + ".bias");
    }
  }

  void add_product(const LoraModule& module, const std::string& name) {
    const auto& [held_as, info] = *find_(weight_of(name));
    const Shape &down = shape(module.down), &up = shape(module.up);
    // Convolutions are changed like the matrix [out, all inputs of an output].
    Shape expected = without_trailing_ones(info.shape, 2);
    const std::int64_t out = expected.empty() ? 0 : expected[0];
    if (!expected.empty()) expected[0] = module.rank;
    require(expected.size() >= 2 && without_trailing_ones(down, 2) == expected && up[0] == out,
            Status::data,
            "{}: tensors '{}' {} and '{}' {} do not fit '{}' {}, expected {} and [{}, {}]", path(),
            printable(module.down), to_string(down), printable(module.up), to_string(up),
            weight_of(name), to_string(info.shape), to_string(expected), out, module.rank);
    const auto scale = static_cast<float>(module.factor * file_.scale);
    add_term(held_as, {&lora_, &module, nullptr, scale, numel(down) / module.rank});
    if (module.bias.empty()) return;
    const auto* const bias = find_(name + ".bias");
    require(bias != nullptr && bias->second.shape == Shape{out}, Status::data,
            "{}: tensor '{}' changes a bias, but '{}' has none", path(), printable(module.bias),
            name);
    add_term(bias->first, {&lora_, &module, &module.bias, scale, 0});
  }

  LoraChanges& changes_;
  const LoraFile& file_;
  const Lora& lora_;
  const Find& find_;
  const std::vector<std::string>& names_;
  std::vector<Unfitting> unfitting_;
  std::vector<std::string> of_images_;
};

LoraChanges::LoraChanges(const std::vector<LoraFile>& files, const Find& find,
                         const std::vector<std::string>& names) {
  loras_.reserve(files.size());  // terms point to them
  for (const LoraFile& file : files) {
    loras_.push_back(Lora::open(file.path));
    Fitting(*this, file, loras_.back(), find, names).fit();
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

std::int64_t LoraChanges::widest(const Terms& terms) {
  std::int64_t widest = 0;
  for (const Term& term : terms) widest = std::max(widest, term.module->rank);
  return widest;
}

void LoraChanges::add(const Terms& terms, std::int64_t first, std::int64_t rows, std::int64_t row,
                      float* values, std::int64_t stride) const {
  std::vector<float> factors;
  for (const Term& term : terms) {
    const bool product = term.added == nullptr;
    const std::string& name = product ? term.module->up : *term.added;
    const std::int64_t length = product ? term.module->rank : row;
    factors.resize(static_cast<std::size_t>(rows * length));
    term.lora->file().read(name, first * length, 1, rows * length, DType::float32, factors.data(),
                           rows * length);
    if (!product) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t c = 0; c < row; ++c) {
          values[i * stride + c] += term.scale * factors[static_cast<std::size_t>(i * row + c)];
        }
      }
      continue;
    }
    const Panels panels = term_panels(term);
    for (std::int64_t column = 0; column < term.columns; column += width) {
      add_product(factors.data(), panels->data() + column * length, length, term.scale, rows,
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
    LoraMemory largest = lora_memory(0, 0);
    for (const auto& [name, module] : lora.modules()) {
      if (module.rank == 0) continue;
      const std::int64_t columns = numel(lora.file().tensors().at(module.down).shape) / module.rank;
      const LoraMemory own = lora_memory(columns, module.rank);
      if (own.shared >= largest.shared) largest = own;
    }
    memory = memory + largest;
  }
  return memory;
}

}  // namespace reelmesh
