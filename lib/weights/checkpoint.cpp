#include "weights/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <system_error>
#include <utility>

#include "tensor/convert.hpp"
#include "weights/json.hpp"
#include "weights/lora_changes.hpp"
#include "weights/names.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// "fp16" for "model.fp16.safetensors", whose stem is "model"; empty for names of other forms.
std::string variant_of(const std::string& file, std::string_view stem) {
  constexpr std::string_view end = ".safetensors";
  if (!file.starts_with(std::string(stem) + ".") || !file.ends_with(end)) return {};
  const std::string middle = file.substr(stem.size() + 1, file.size() - stem.size() - 1);
  if (middle.size() <= end.size()) return {};
  const std::string variant = middle.substr(0, middle.size() - end.size());
  const bool is_word =
      variant.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  return is_word ? variant : std::string();
}

/// Fails because the folder has neither the file nor the index; names what it has instead.
[[noreturn]] void fail_without_weights(const fs::path& folder, std::string_view stem) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    fail(Status::no_input, "{}: no such folder", folder.string());
  }
  for (const char* end : {".safetensors", ".safetensors.index.json"}) {
    const fs::path link = folder / (std::string(stem) + end);
    if (!fs::is_symlink(link, error)) continue;
    fail(Status::no_input, "{}: is a link to {}, which is not there (an incomplete download?)",
         link.string(), fs::read_symlink(link, error).string());
  }
  std::vector<std::string> pickles, others, gguf;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string extension = it->path().extension().string();
    const std::string name = it->path().filename().string();
    if (extension == ".safetensors") others.push_back(name);
    if (extension == ".gguf") gguf.push_back(name);
    if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt") {
      pickles.push_back(name);
    }
  }
  std::sort(pickles.begin(), pickles.end());
  std::sort(others.begin(), others.end());
  std::sort(gguf.begin(), gguf.end());
  std::string hint;
  const std::string of_variant = others.empty() ? "" : variant_of(others.front(), stem);
  if (!of_variant.empty()) {
    hint = fmt::format(" (there is {}: give --model.variant {})", others.front(), of_variant);
  } else if (!others.empty()) {
    hint = fmt::format(" (there is {})", others.front());
  } else if (!pickles.empty()) {
    hint = fmt::format(
        " (there is {}, but reelmesh reads safetensors only: save the model again with "
        "save_pretrained(..., safe_serialization=True))",
        pickles.front());
  } else if (!gguf.empty()) {
    hint = fmt::format(
        " (there is {}, but GGUF files, whose quantized weights are not read, must be converted to "
        "safetensors)",
        gguf.front());
  }
  fail(Status::no_input, "{}: found neither {}.safetensors nor {}.safetensors.index.json{}",
       folder.string(), stem, stem, hint);
}

/// Checks that a file name from an index does not lead out of the folder.
void check_base_name(const std::string& name, const fs::path& index) {
  const bool plain = !name.empty() && name != "." && name != ".." &&
                     name.find_first_of("/\\") == std::string::npos &&
                     name.find('\0') == std::string::npos;
  if (!plain) {
    fail(Status::data, "{}: weight_map names the file '{}', expected a name without folders",
         index.string(), printable(name));
  }
}

// Of tensors that belong to another one, in the files of ComfyUI and others. Those of the inputs
// are for products of float8, which are not made here.
constexpr std::string_view weight_end = ".weight";
constexpr std::array<std::string_view, 2> scale_ends{".scale_weight", ".weight_scale"};
constexpr std::array<std::string_view, 3> unused_ends{".scale_input", ".input_scale",
                                                      ".comfy_quant"};

bool same_but_for_ones_at_the_ends(Shape a, Shape b) {
  for (Shape* shape : {&a, &b}) {
    while (!shape->empty() && shape->back() == 1) shape->pop_back();
    while (!shape->empty() && shape->front() == 1) shape->erase(shape->begin());
  }
  return a == b;
}

}  // namespace

/// Values that replace those of the files.
struct Checkpoint::GivenValues {
  // Parts of fused layers, and their biases, are asked for before the first is read.
  static constexpr std::size_t max = 8;
  Values values;
  std::deque<std::pair<std::string, Tensor>> last;

  Tensor take(const std::string& name, const Shape& expected) {
    Tensor found = values(name, expected);
    expect(found.numel() == numel(expected) && found.dtype() == DType::float32,
           "values {} in {} for tensor '{}' {}", found.shape(), name_of(found.dtype()), name,
           to_string(expected));
    return found.reshape(expected);
  }
  void keep(const std::string& name, const Shape& expected) {
    if (last.size() == max) last.pop_front();
    last.emplace_back(name, take(name, expected));
  }
  const Tensor& kept(const std::string& name) const {
    const auto found = std::ranges::find(last, name, &std::pair<std::string, Tensor>::first);
    expect(found != last.end(), "tensor '{}' is read, but was not asked for lately", name);
    return found->second;
  }
};

WeightFiles weight_files(const fs::path& folder, std::string_view stem, std::string_view variant) {
  const std::string middle = variant.empty() ? "" : fmt::format(".{}", variant);
  const fs::path index = folder / fmt::format("{}.safetensors.index{}.json", stem, middle);
  const fs::path single = folder / fmt::format("{}{}.safetensors", stem, middle);
  if (is_there(index)) return {index, true};
  if (is_there(single)) return {single, false};
  return {};
}

Checkpoint Checkpoint::open(const fs::path& folder, std::string_view stem,
                            std::string_view variant) {
  Contents contents;
  contents.folder = folder;
  WeightFiles found = weight_files(folder, stem, variant);
  if (found.path.empty()) found = weight_files(folder, stem);  // as diffusers
  if (found.path.empty()) fail_without_weights(folder, stem);
  if (found.is_index) {
    contents.open_index(found.path);
  } else {
    contents.add_file(found.path);
    contents.tensors = contents.files.at(found.path).tensors();
  }
  contents.remove_prefix();
  return Checkpoint(std::make_shared<const Contents>(std::move(contents)));
}

Checkpoint Checkpoint::of_shapes(ExpectedShapes* asked) {
  Checkpoint out(nullptr);
  out.only_shapes_ = true;
  out.asked_ = asked;
  out.device_ = Device::shapes();
  return out;
}

Checkpoint Checkpoint::without_values() const {
  Checkpoint out = *this;
  out.only_shapes_ = true;
  out.device_ = Device::shapes();
  return out;
}

Checkpoint Checkpoint::on(Device device, const Numerics& numerics) const {
  Checkpoint out = *this;
  out.device_ = device;
  out.numerics_ = numerics;
  return out;
}

Checkpoint Checkpoint::with(const std::vector<LoraFile>& loras) const {
  Checkpoint out = *this;
  out.changes_.reset();
  if (loras.empty()) return out;
  std::vector<std::string> names;
  for (const auto& [name, info] : tensors()) names.push_back(current_name(name));
  out.changes_ = std::make_shared<const LoraChanges>(
      loras, [this](const std::string& name) { return find(name); }, names);
  return out;
}

Checkpoint Checkpoint::with_values(Values values) const {
  Checkpoint out = *this;
  out.given_ = std::make_shared<GivenValues>();
  out.given_->values = std::move(values);
  return out;
}

// Of wrappers of modules in PyTorch, and of programs that store a whole pipeline in one file.
void Checkpoint::Contents::remove_prefix() {
  constexpr std::array<std::string_view, 5> prefixes{"module.", "_orig_mod.", "diffusion_model.",
                                                     "model.", "transformer."};
  for (bool again = !tensors.empty(); again;) {
    again = false;
    for (const std::string_view known : prefixes) {
      const bool shared = std::ranges::all_of(
          tensors, [&](const auto& tensor) { return tensor.first.starts_with(known); });
      if (!shared) continue;
      TensorInfos shorter;
      for (auto& [name, info] : tensors) shorter.emplace(name.substr(known.size()), info);
      tensors = std::move(shorter);
      prefix += known;
      again = true;
    }
  }
}

void Checkpoint::Contents::add_file(const fs::path& path) {
  if (!files.contains(path)) files.emplace(path, SafetensorsFile::open(path));
}

void Checkpoint::Contents::open_index(const fs::path& index) {
  const json root = parse_json(read_text(index, max_header_bytes), index.string(),
                               {.depth = 8, .values = 2 * max_tensors});
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (map == root.end() || !map->is_object() || map->empty()) {
    fail(Status::data, "{}: no weight_map, expected an object of tensor names and file names",
         index.string());
  }
  for (const auto& [name, value] : map->items()) {
    if (!value.is_string()) {
      fail(Status::data, "{}: weight_map of tensor '{}' is {}, expected a file name",
           index.string(), printable(name), printable(value.dump()));
    }
    const auto& base = value.get_ref<const std::string&>();
    check_base_name(base, index);
    const fs::path path = folder / base;
    if (!files.contains(path) && !is_there(path)) {
      fail(Status::no_input, "{}: not found, expected by {}", path.string(), index.string());
    }
    add_file(path);
    const TensorInfos& held = files.at(path).tensors();
    const auto found = held.find(name);
    if (found == held.end()) {
      fail(Status::data, "{}: tensor '{}' is missing, expected here by {}", path.string(),
           printable(name), index.string());
    }
    tensors.insert(*found);
  }
}

const TensorInfos::value_type* Checkpoint::find(const std::string& name) const {
  if (const auto it = tensors().find(name); it != tensors().end()) return &*it;
  for (const std::string& older : older_names(name)) {
    if (const auto it = tensors().find(older); it != tensors().end()) return &*it;
  }
  return nullptr;
}

const TensorInfos::value_type& Checkpoint::find(const std::string& name,
                                                const Shape& expected) const {
  const auto* found = find(name);
  if (found == nullptr) {
    fail(Status::data, "{}: tensor '{}' is missing, expected shape {}", folder().string(), name,
         to_string(expected));
  }
  const TensorInfo& info = found->second;
  if (!same_but_for_ones_at_the_ends(info.shape, expected)) {
    fail(Status::data, "{}: tensor '{}' has shape {}, expected {}", info.file.string(), name,
         to_string(info.shape), to_string(expected));
  }
  if (!loadable(info.dtype)) {
    fail(Status::data, "{}: tensor '{}' holds {}, expected {}", info.file.string(), name,
         info.dtype, loadable_types);
  }
  if (const auto* scale = scale_of(found->first)) {
    const std::int64_t rows = expected.empty() ? 1 : expected[0], all = numel(scale->second.shape);
    require(all == 1 || (all == rows && scale->second.shape[0] == rows), Status::data,
            "{}: tensor '{}' has shape {}, expected one scale, or one for each of {} rows (scales "
            "of blocks are not supported)",
            scale->second.file.string(), printable(scale->first), to_string(scale->second.shape),
            rows);
  }
  return *found;
}

const TensorInfos::value_type* Checkpoint::scale_of(const std::string& held_as) const {
  if (!held_as.ends_with(weight_end)) return nullptr;
  const std::string layer = held_as.substr(0, held_as.size() - weight_end.size());
  for (const std::string_view end : scale_ends) {
    const auto found = tensors().find(layer + std::string(end));
    if (found != tensors().end()) return &*found;
  }
  return nullptr;
}

std::vector<float> Checkpoint::scales(const TensorInfos::value_type& scale, std::int64_t begin,
                                      std::int64_t count) const {
  const auto& [name, info] = scale;
  const bool is_one = numel(info.shape) == 1;
  std::vector<float> values(static_cast<std::size_t>(is_one ? 1 : count));
  const std::int64_t n = std::ssize(values);
  tensor_file(info).read(contents_->prefix + name, is_one ? 0 : begin, 1, n, DType::float32,
                         values.data(), n);
  return values;
}

bool Checkpoint::describes_others(const std::string& held_as) const {
  for (const std::string_view end : scale_ends) {
    if (!held_as.ends_with(end)) continue;
    const std::string layer = held_as.substr(0, held_as.size() - end.size());
    return tensors().contains(layer + std::string(weight_end));
  }
  return held_as == "scaled_fp8" || std::ranges::any_of(unused_ends, [&](std::string_view end) {
           return held_as.ends_with(end);
         });
}

void Checkpoint::ask(const std::string& name, const Shape& expected) const {
  if (given_ != nullptr) given_->keep(name, expected);
  if (!only_shapes_) {
    find(name, expected);
  } else if (asked_ != nullptr) {
    asked_->insert_or_assign(name, expected);
  }
}

Tensor Checkpoint::load(const std::string& name, const Shape& expected, DType dtype) const {
  // Not in the memory of whoever gives them.
  if (given_ != nullptr) return given_->take(name, expected).to(dtype).clone().on(device_);
  if (only_shapes_) {
    ask(name, expected);
    return Tensor::empty(expected, dtype, device_.host()).on(device_);
  }
  const auto& [held_as, info] = find(name, expected);
  if (scale_of(held_as) != nullptr || (changes_ != nullptr && changes_->find(held_as) != nullptr)) {
    return load_rows(name, expected, 0, expected.at(0), dtype);
  }
  return tensor_file(info).load(contents_->prefix + held_as, dtype).reshape(expected).on(device_);
}

Tensor Checkpoint::load_rows(const std::string& name, const Shape& expected, std::int64_t begin,
                             std::int64_t count, DType dtype) const {
  expect(!expected.empty() && count >= 0, "{} rows of tensor '{}' {}", count, name,
         to_string(expected));
  Shape shape = expected;
  shape[0] = count;
  Tensor out = Tensor::empty(std::move(shape), dtype, device_.host());
  if (only_shapes_) {
    if (given_ == nullptr) ask(name, expected);  // those that are given were asked for before
    return out.on(device_);
  }
  read_rows(name, expected, begin, count, dtype, out.raw(),
            count == 0 ? numel(expected) : out.numel() / count);
  return out.on(device_);
}

void Checkpoint::read_rows(const std::string& name, const Shape& expected, std::int64_t begin,
                           std::int64_t count, DType dtype, void* into, std::int64_t stride) const {
  if (given_ != nullptr) {
    const Tensor values = given_->kept(name).rows(begin, count);
    const std::int64_t row = count == 0 ? 0 : values.numel() / count;
    for (std::int64_t i = 0; i < count; ++i) {
      convert(values.data<float>() + i * row, DType::float32,
              static_cast<std::byte*>(into) + i * stride * size_of(dtype), dtype, row);
    }
    return;
  }
  const auto& [held_as, info] = find(name, expected);
  expect(!expected.empty() && begin >= 0 && count >= 0 && begin <= expected[0] &&
             count <= expected[0] - begin,
         "rows {} to {} of tensor '{}' {}", begin, begin + count, name, to_string(expected));
  Shape one = expected;
  one[0] = 1;
  const std::int64_t row = numel(one);
  const LoraChanges::Terms* terms = changes_ == nullptr ? nullptr : changes_->find(held_as);
  const auto* scale = scale_of(held_as);
  if (terms == nullptr && scale == nullptr) {
    tensor_file(info).read(contents_->prefix + held_as, begin * row, count, row, dtype, into,
                           stride);
    return;
  }
  // At most so many elements of the tensor, and of B, at once, as lora_memory() counts; without
  // LoRAs as many as stay in the caches.
  const std::int64_t piece = std::int64_t{1} << (terms == nullptr ? 14 : 18);
  std::int64_t widest = std::max<std::int64_t>(1, row);
  if (terms != nullptr) widest = std::max(widest, LoraChanges::widest(*terms));
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, piece / widest);
  std::vector<float> factors, wide;
  if (scale != nullptr) factors = scales(*scale, begin, count);
  for (std::int64_t r = 0; r < count; r += rows_at_once) {
    const std::int64_t n = std::min(rows_at_once, count - r);
    std::byte* target = static_cast<std::byte*>(into) + r * stride * size_of(dtype);
    const bool in_place = dtype == DType::float32;
    if (!in_place) wide.resize(static_cast<std::size_t>(n * row));
    float* values = in_place ? reinterpret_cast<float*>(target) : wide.data();
    const std::int64_t apart = in_place ? stride : row;
    tensor_file(info).read(contents_->prefix + held_as, (begin + r) * row, n, row, DType::float32,
                           values, apart);
    for (std::int64_t i = 0; scale != nullptr && i < n; ++i) {
      const float factor = factors[factors.size() == 1 ? 0 : static_cast<std::size_t>(r + i)];
      for (std::int64_t k = 0; k < row; ++k) values[i * apart + k] *= factor;
    }
    if (terms != nullptr) changes_->add(*terms, begin + r, n, row, values, apart);
    if (in_place) continue;
    for (std::int64_t i = 0; i < n; ++i) {
      convert(values + i * row, DType::float32, target + i * stride * size_of(dtype), dtype, row);
    }
  }
}

std::optional<Float8Rows> Checkpoint::float8_rows(const std::string& name,
                                                  const Shape& expected) const {
  if (given_ != nullptr || contents_ == nullptr) return std::nullopt;
  const auto* found = find(name);
  if (found == nullptr && only_shapes_) return std::nullopt;
  const auto& [held_as, info] = find(name, expected);
  const Float8Values* values = float8_values(info.dtype);
  const bool changed = changes_ != nullptr && changes_->find(held_as) != nullptr;
  if (values == nullptr || changed) return std::nullopt;
  Float8Rows rows{.values = values, .factors = {}, .read = {}};
  if (only_shapes_) return rows;
  rows.factors.assign(static_cast<std::size_t>(expected.at(0)), 1);
  if (const auto* scale = scale_of(held_as)) {
    const std::vector<float> factors = scales(*scale, 0, expected[0]);
    for (std::size_t i = 0; i < rows.factors.size(); ++i) {
      rows.factors[i] = factors[factors.size() == 1 ? 0 : i];
    }
  }
  const std::int64_t row = numel(expected) / std::max<std::int64_t>(1, expected[0]);
  rows.read = [own = *this, name = contents_->prefix + held_as, file = info.file, row](
                  std::int64_t first, std::int64_t count, std::byte* into) {
    own.files().at(file).read_float8(name, first * row, count * row, into);
  };
  return rows;
}

void Checkpoint::check(const ExpectedShapes& expected) const {
  for (const auto& [name, shape] : expected) find(name, shape);
}

Difference Checkpoint::compare(const ExpectedShapes& expected) const {
  Difference out;
  for (const auto& [name, shape] : expected) {
    const auto* found = find(name);
    if (found == nullptr) {
      out.missing.push_back(name);
    } else if (!same_but_for_ones_at_the_ends(found->second.shape, shape)) {
      out.wrong_shapes.push_back({name, found->second.shape, shape});
    }
  }
  for (const auto& [name, info] : tensors()) {
    if (!expected.contains(name) && !expected.contains(current_name(name)) &&
        !describes_others(name)) {
      out.unexpected.push_back(name);
    }
  }
  return out;
}

}  // namespace reelmesh
