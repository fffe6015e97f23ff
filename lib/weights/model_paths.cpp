#include "weights/model_paths.hpp"

#include <algorithm>
#include <system_error>

#include "base/error.hpp"
#include "weights/checkpoint.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& path, const fs::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

/// models--ORG--NAME/blobs for a folder in models--ORG--NAME/snapshots; empty for other folders.
fs::path blobs_of_hub(const fs::path& folder) {
  for (fs::path path = folder; path.has_relative_path(); path = path.parent_path()) {
    const fs::path model = path.parent_path().parent_path();
    if (path.parent_path().filename() != "snapshots") continue;
    if (model.filename().string().starts_with("models--")) return model / "blobs";
  }
  return {};
}

/// Checks a path of the checkpoint in the folder `root`, which may be a link itself.
void check_link(const fs::path& path, const fs::path& root, const std::string& hint) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return;
  const fs::path target = fs::canonical(path, error);
  if (error) return;  // it leads nowhere
  const fs::path folder = fs::canonical(root, error);
  if (error || is_inside(target, folder)) return;
  const fs::path blobs = blobs_of_hub(folder);
  if (!blobs.empty() && is_inside(target, blobs)) return;
  fail(Status::data, "{}: is a link to {}, expected a path within {} ({})", path.string(),
       fs::read_symlink(path, error).string(), root.string(), hint);
}

}  // namespace

void ModelPaths::complete() {
  const auto set = [&](fs::path& part, const char* folder) {
    if (part.empty()) part = root / folder;
  };
  set(transformer, "transformer");
  set(vae, "vae");
  set(text_encoder, "text_encoder");
  set(tokenizer, "tokenizer");
  set(scheduler, "scheduler");
}

void ModelPaths::check_links() const {
  check_link(root / "model_index.json", root, "copy the file");
  const auto check_part = [&](const fs::path& part, const char* option) {
    const bool own =
        part.lexically_normal().parent_path() != (root / "part").lexically_normal().parent_path();
    const fs::path& checkpoint = own ? part : root;
    if (!own) check_link(part, root, fmt::format("{} takes a folder elsewhere", option));
    std::error_code error;
    for (fs::directory_iterator it(part, error), end; !error && it != end; it.increment(error)) {
      check_link(it->path(), checkpoint, "copy the file");
    }
  };
  check_part(transformer, "model.transformer");
  check_part(vae, "model.vae");
  check_part(text_encoder, "model.text-encoder");
  check_part(tokenizer, "model.tokenizer");
  check_part(scheduler, "model.scheduler");
}

void ModelPaths::check() const {
  std::error_code unreadable;  // a folder above may be closed to this user
  const auto need = [&](const std::filesystem::path& folder, const char* option) {
    require(std::filesystem::is_directory(folder, unreadable), Status::no_input,
            "{}: folder {} not found", option, folder.string());
  };
  need(root, "model.path");
  need(transformer, "model.transformer");
  need(vae, "model.vae");
  need(text_encoder, "model.text-encoder");
  need(tokenizer, "model.tokenizer");
  need(scheduler, "model.scheduler");
  for (const LoraFile& lora : loras) {
    require(std::filesystem::exists(lora.path, unreadable), Status::no_input,
            "model.lora: {} not found", lora.path.string());
  }
}

const fs::path& ModelPaths::folder(ModelPart part) const {
  return part == ModelPart::transformer ? transformer : part == ModelPart::vae ? vae : text_encoder;
}

NamedClass class_of_part(const ModelPaths& paths, const std::string& part, const Config& config) {
  const fs::path index = paths.root / "model_index.json";
  std::error_code error;
  if (config.file().parent_path() == paths.root / part && fs::exists(index, error)) {
    const auto parts = read_model_index(index).parts;
    if (const auto found = parts.find(part); found != parts.end()) {
      return {printable(found->second.class_name), fmt::format("{}: {}", index.string(), part)};
    }
  }
  const std::string name = class_named_in(config);
  return {name.empty() ? "(none)" : printable(name), config.file().string()};
}

std::string ModelPaths::described() const {
  std::string text = root.string();
  for (const LoraFile& lora : loras) {
    text += (&lora == &loras.front() ? " with LoRA " : ", ") + lora.path.string();
    if (lora.scale != 1) text += fmt::format(" (scale {})", lora.scale);
  }
  return text;
}

Checkpoint ModelPaths::open_transformer() const {
  return Checkpoint::open(transformer, "diffusion_pytorch_model").with(loras);
}

Checkpoint ModelPaths::open_vae() const { return Checkpoint::open(vae, "diffusion_pytorch_model"); }

Checkpoint ModelPaths::open_text_encoder() const { return Checkpoint::open(text_encoder, "model"); }

Checkpoint ModelPaths::open(ModelPart part) const {
  switch (part) {
    case ModelPart::transformer:
      return open_transformer();
    case ModelPart::vae:
      return open_vae();
    case ModelPart::text_encoder:
      return open_text_encoder();
  }
  fail(Status::internal, "a model has no part {}", static_cast<int>(part));
}

}  // namespace reelmesh
