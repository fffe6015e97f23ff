#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>

#include "base/log.hpp"
#include "base/report.hpp"
#include "base/units.hpp"
#include "commands.hpp"
#include "counts.hpp"
#include "models/checkpoints/random_model.hpp"
#include "options.hpp"
#include "preset.hpp"
#include "text/tokenizer.hpp"
#include "text/train.hpp"
#include "tokenizer_text.hpp"

namespace reelmesh::app {
namespace {

namespace fs = std::filesystem;

// Error(cannot_create) if the folder exists and is not empty.
void create_empty(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error)) {
    require(fs::is_directory(folder, error), Status::cannot_create,
            "{}: found a file, expected a new or empty folder", folder.string());
    const bool empty = fs::is_empty(folder, error);
    require(!error, Status::cannot_create, "{}: cannot be read: {}", folder.string(),
            error.message());
    require(empty, Status::cannot_create,
            "{}: found a folder with files, expected a new or empty one", folder.string());
  }
  fs::create_directories(folder, error);
  require(!error, Status::cannot_create, "{}: cannot be created: {}", folder.string(),
          error.message());
}

void require_space(const fs::path& folder, std::int64_t bytes) {
  struct statvfs disk {};
  require(::statvfs(folder.c_str(), &disk) == 0, Status::cannot_create, "{}: {}", folder.string(),
          std::strerror(errno));
  const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  require(free >= static_cast<double>(bytes), Status::cannot_create,
          "{}: found {} of free disk space, expected {} for the checkpoint", folder.string(),
          format_bytes(free), format_bytes(static_cast<double>(bytes)));
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Status make_model_command(int argc, const char* const* argv) {
  const MakeModelOptions options = parse_make_model(argc, argv);
  ModelPreset preset = find_preset(options.preset);
  nlohmann::json& text_encoder = preset.parts.at(ModelPart::text_encoder);
  for (const ModelPart part : {ModelPart::transformer, ModelPart::transformer_2}) {
    if (!options.layers || !preset.parts.contains(part)) continue;
    nlohmann::json& transformer = preset.parts.at(part);
    transformer[transformer.contains("depth") ? "depth" : "num_layers"] = *options.layers;
  }
  if (options.text_layers) text_encoder["num_layers"] = *options.text_layers;
  const DType dtype = options.dtype.value_or(preset.dtype);
  const Flush flush = options.sync ? Flush::yes : Flush::no;
  if (log::launch_rank() != first_rank) return Status::ok;  // only one rank writes

  std::error_code error;
  require(!options.text || fs::is_regular_file(*options.text, error), Status::no_input,
          "{}: not found, expected a text to make the tokenizer from (--text)",
          options.text.value_or("").string());
  const double begin = now();
  create_empty(options.folder);
  std::int64_t bytes = 4 << 20;  // headers, configurations, tokenizer
  for (const auto& [part, config] : preset.parts) bytes += part_size(preset, part, dtype).bytes;
  require_space(options.folder, bytes);

  const fs::path tokenizer = options.folder / "tokenizer";
  fs::create_directory(tokenizer, error);
  require(!error, Status::cannot_create, "{}: cannot be created: {}", tokenizer.string(),
          error.message());
  if (options.text) {
    train_tokenizer(*options.text, tokenizer, preset.tokenizer_pieces);
  } else {
    train_tokenizer(tokenizer_text, "inputs/tokenizer_text.txt", tokenizer,
                    preset.tokenizer_pieces);
  }
  const std::int64_t ids = Tokenizer::open(tokenizer).vocabulary_size();
  expect(ids <= text_encoder["vocab_size"].get<std::int64_t>(), "a tokenizer of {} ids", ids);

  Table table({"part", "tensors", "parameters", "bytes", "time"});
  PartSize all;
  for (const auto& [part, config] : preset.parts) {
    const double start = now();
    write_random_part(preset, part, dtype, options.seed, options.folder, flush);
    const PartSize size = part_size(preset, part, dtype);
    table.row({part_folder(part), with_separators(size.tensors), with_separators(size.parameters),
               with_separators(size.bytes), format_seconds(now() - start)});
    all = {all.tensors + size.tensors, all.parameters + size.parameters, all.bytes + size.bytes};
  }
  write_configs(preset, options.folder, flush);
  table.row({"all", with_separators(all.tensors), with_separators(all.parameters),
             with_separators(all.bytes), format_seconds(now() - begin)});
  std::cout << fmt::format("{}: {} with random {} weights of seed {}, tokenizer of {} ids\n\n",
                           options.folder.string(), preset.name, name_of(dtype), options.seed, ids)
            << table.str() << std::flush;
  return Status::ok;
}

}  // namespace reelmesh::app
