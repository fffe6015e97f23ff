#include "models/checkpoints/survey.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include "weights/names.hpp"

namespace reelmesh {
namespace {

void count(PartSurvey& out, const TensorInfos& tensors) {
  std::set<std::filesystem::path> files;
  for (const auto& [name, info] : tensors) {
    files.insert(info.file);
    ++out.tensors;
    out.parameters += numel(info.shape);
    out.bytes[info.dtype] += info.bytes;
  }
  out.files = files.size();
}

// Tensors of intact models that are not read: tables of positions, which are computed (Open-Sora;
// those that old versions of transformers saved), and the decoder of a whole T5.
bool is_known_unread(ModelPart part, const std::string& name) {
  if (name.ends_with(".position_ids") || name.ends_with(".inv_freq")) return true;
  if (part == ModelPart::text_encoder) {
    return name.starts_with("decoder.") || name.starts_with("lm_head.");
  }
  return part == ModelPart::transformer &&
         (name == "pos_embed" || name == "pos_embed_temporal" || name == "rope.freqs");
}

// "transformer_blocks." of transformer_blocks.0.norm1.weight; empty if the name has no number.
std::string_view list_of_blocks(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view word = name.substr(begin, end - begin);
    if (!word.empty() && std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c); }))
      return name.substr(0, begin);
    begin = end + 1;
  }
  return {};
}

// Those within blocks that the model has, or of further ones of them: the blocks of this checkpoint
// compute something else.
std::vector<std::string> within_blocks(const std::vector<std::string>& unread,
                                       const ExpectedShapes& expected) {
  std::set<std::string_view> lists;
  for (const auto& [name, shape] : expected) lists.insert(list_of_blocks(name));
  lists.erase(std::string_view());
  std::vector<std::string> found;
  std::ranges::copy_if(unread, std::back_inserter(found), [&](const std::string& name) {
    return lists.contains(list_of_blocks(name));
  });
  return found;
}

void add_unused_contents(std::vector<std::string>& found, const ModelPaths& paths, ModelPart part) {
  const Config config = Config::read(paths.folder(part) / "config.json");
  if (config.has("quantization_config")) {
    found.push_back(fmt::format(
        "{}: quantization_config is not followed: the weights are used in the types that they have",
        config.file().string()));
  }
  if (!paths.has_weights(part)) return;
  const Checkpoint checkpoint = paths.open(part);
  const ExpectedShapes expected = expected_tensors(part, config);
  std::vector<std::string> unread = checkpoint.compare(expected).unexpected;
  std::erase_if(unread, [&](const std::string& name) { return is_known_unread(part, name); });
  const std::vector<std::string> within = within_blocks(unread, expected);
  require(paths.allow_unread || within.empty(), Status::data,
          "{}: found {} tensor{} inside its blocks that {} does not have, expected none, as the "
          "clips would not be those of this checkpoint (model.unread = allow makes them): {}",
          paths.folder(part).string(), within.size(), within.size() == 1 ? "" : "s",
          model_class(part, config), grouped(within));
  if (!unread.empty()) {
    found.push_back(fmt::format("{}: {} tensor{} not read: {}", paths.folder(part).string(),
                                unread.size(), unread.size() == 1 ? " is" : "s are",
                                grouped(unread)));
  }
}

void compare(PartSurvey& out, const Checkpoint& checkpoint, bool from_image) {
  const ExpectedShapes all = expected_tensors(out.part, *out.config);
  const ExpectedShapes needed = from_image ? all : needed_tensors(out.part, *out.config);
  Difference whole = checkpoint.compare(all), difference = checkpoint.compare(needed);
  out.expected = all.size();
  out.unneeded = all.size() - needed.size();
  out.unneeded_missing = whole.missing.size() - difference.missing.size();
  out.unneeded_wrong = whole.wrong_shapes.size() - difference.wrong_shapes.size();
  out.unexpected = std::move(whole.unexpected);
  out.missing = std::move(difference.missing);
  out.wrong_shapes = std::move(difference.wrong_shapes);
  for (const auto& [name, info] : checkpoint.tensors()) {
    const bool used = needed.contains(name) || needed.contains(current_name(name));
    if (used && !loadable(info.dtype)) out.wrong_types.push_back({name, info.dtype});
  }
}

}  // namespace

Status PartSurvey::verdict() const {
  if (status != Status::ok) return status;
  const bool whole = missing.empty() && wrong_shapes.empty() && wrong_types.empty();
  return whole ? Status::ok : Status::data;
}

PartSurvey survey(ModelPart part, const std::filesystem::path& folder,
                  const PartSurvey* transformer) {
  PartSurvey out;
  out.part = part;
  out.folder = folder;
  try {
    std::error_code unreadable;
    require(std::filesystem::is_directory(folder, unreadable), Status::no_input,
            "{}: no such folder", folder.string());
    out.config = Config::read(folder / "config.json");
    out.class_name = model_class(part, *out.config);
    const bool is_known = transformer != nullptr && transformer->status == Status::ok;
    if (is_known) check_belongs_to(*transformer->config, part, *out.config);
    const Checkpoint checkpoint = Checkpoint::open(folder, weights_stem(part));
    count(out, checkpoint.tensors());
    compare(out, checkpoint, is_known && takes_image(*transformer->config));
  } catch (const Error& error) {
    out.status = error.status();
    out.problem = error.what();
  } catch (const std::filesystem::filesystem_error& error) {
    out.status = Status::io;
    out.problem = error.what();
  }
  return out;
}

std::vector<std::string> unused_contents_of(const ModelPaths& paths) {
  std::vector<std::string> found;
  for (const ModelPart part : paths.parts()) add_unused_contents(found, paths, part);
  return found;
}

}  // namespace reelmesh
