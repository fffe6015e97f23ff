#include "options.hpp"

#include <algorithm>
#include <boost/program_options/value_semantic.hpp>
#include <map>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "given.hpp"
#include "keys.hpp"
#include "prompts.hpp"
#include "values.hpp"

namespace reelmesh::app {
namespace po = boost::program_options;
namespace {

std::string section_of(const std::string& name) { return name.substr(0, name.find('.')); }

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Key& key : keys()) names.emplace_back(key.name);
  return names;
}

po::options_description described() {
  constexpr unsigned width = 100;
  po::options_description all("", width, width / 2);
  po::options_description general("General", width, width / 2);
  general.add_options()("config", po::value<std::string>()->value_name("FILE"),
                        "job file: [section] lines, key = value lines and # comment lines with the "
                        "keys below; the command line wins")("help", "this text");
  all.add(general);
  for (std::size_t i = 0; i < keys().size();) {
    const std::string section = section_of(keys()[i].name);
    po::options_description group("[" + section + "]", width, width / 2);
    for (; i < keys().size() && section_of(keys()[i].name) == section; ++i) {
      const Key& key = keys()[i];
      auto* value = po::value<std::string>()->value_name(key.value);
      if (key.fallback != nullptr) value->default_value(key.fallback);
      group.add_options()(key.name, value, key.help);
    }
    all.add(group);
  }
  return all;
}

using ByName = std::map<std::string, std::vector<Given>>;

// Collects what one source gives; only repeatable keys may come twice.
ByName by_name(const std::vector<Given>& givens) {
  ByName found;
  for (const Given& given : givens) {
    auto& values = found[given.name];
    const auto key = std::find_if(keys().begin(), keys().end(),
                                  [&](const Key& k) { return k.name == given.name; });
    const bool repeatable = key != keys().end() && key->repeatable;
    require(values.empty() || repeatable, Status::usage,
            "{}: given twice ('{}' and '{}'), expected once", given.where,
            values.empty() ? "" : values.front().value, given.value);
    values.push_back(given);
  }
  return found;
}

// Prompts are one thing in two keys: who names some on the command line wants those only.
void drop_replaced_prompts(ByName& file, const ByName& line) {
  if (!line.contains("prompt.text") && !line.contains("prompt.file")) return;
  file.erase("prompt.text");
  file.erase("prompt.file");
}

// Sets every key from the command line, else the file, else its default, in the order of the table.
Draft set_keys(const ByName& line, const ByName& file) {
  Draft draft;
  for (const Key& key : keys()) {
    std::vector<Given> values;
    if (const auto on_line = line.find(key.name); on_line != line.end()) {
      values = on_line->second;
    } else if (const auto in_file = file.find(key.name); in_file != file.end()) {
      values = in_file->second;
    } else if (key.fallback != nullptr) {
      values.push_back({.name = key.name, .value = key.fallback, .where = key.name});
    }
    for (const Given& given : values) {
      key.set(draft, given.value, given.where);
      draft.job.options.emplace_back(key.name, given.value);
    }
  }
  return draft;
}

void complete_model_paths(ModelPaths& model) {
  const auto complete = [&](std::filesystem::path& part, const char* folder) {
    if (part.empty()) part = model.root / folder;
  };
  complete(model.transformer, "transformer");
  complete(model.vae, "vae");
  complete(model.text_encoder, "text_encoder");
  complete(model.tokenizer, "tokenizer");
  complete(model.scheduler, "scheduler");
}

void add_clips(Draft& draft) {
  std::vector<ClipRequest>& clips = draft.job.clips;
  for (const std::string& text : draft.texts) {
    clips.push_back({.prompt = text, .negative_prompt = draft.negative});
  }
  if (!draft.prompt_file.empty()) {
    const auto more = read_prompts(draft.prompt_file, draft.negative, "prompt.file");
    clips.insert(clips.end(), more.begin(), more.end());
  }
  constexpr std::size_t max_clips = 1000000;  // clip files are named by six digits
  require(clips.size() <= max_clips, Status::usage, "{} prompts are given, expected at most {}",
          clips.size(), max_clips);
}

}  // namespace

namespace {

// The job that the words and the file that they name ask for.
Draft read_draft(const std::vector<Given>& givens, const std::vector<std::string>& operands) {
  require(operands.empty(), Status::usage,
          "unexpected argument '{}', expected options such as --sample.steps 50",
          operands.empty() ? "" : operands.front());
  const ByName line = by_name(givens);
  ByName file;
  if (const auto config = line.find("config"); config != line.end()) {
    file = by_name(read_config(config->second.front().value, key_names()));
    drop_replaced_prompts(file, line);
  }
  Draft draft = set_keys(line, file);
  require(!draft.job.model.root.empty(), Status::usage,
          "model.path is missing, expected the folder of a checkpoint");
  complete_model_paths(draft.job.model);
  return draft;
}

po::options_description described_plan() {
  constexpr unsigned width = 100;
  po::options_description own("Plan", width, width / 2);
  own.add_options()("ranks", po::value<std::string>()->value_name("N"),
                    "ranks of the job (required)")(
      "ranks-per-node", po::value<std::string>()->value_name("M"),
      "ranks that a node has; default: all are on one")(
      "device-memory", po::value<std::string>()->value_name("SIZES"),
      "the same as device.memory-limit: 16GiB, or a size for each rank")("json", po::bool_switch(),
                                                                         "for programs");
  po::options_description all("", width, width / 2);
  all.add(own);
  all.add(described());
  return all;
}

}  // namespace

Job parse_run(int argc, const char* const* argv) {
  const CommandLine words = read_command_line(argc, argv, described());
  Draft draft = read_draft(words.options, words.operands);
  require(!draft.job.output.empty(), Status::usage,
          "output.path is missing, expected a folder for the results");
  require(!draft.texts.empty() || !draft.prompt_file.empty(), Status::usage,
          "no prompt is given, expected prompt.text or prompt.file");
  add_clips(draft);
  return std::move(draft.job);
}

PlanOptions parse_plan(int argc, const char* const* argv) {
  CommandLine words = read_command_line(argc, argv, described_plan());
  PlanOptions options;
  std::vector<Given> of_job;
  std::set<std::string> seen;
  for (Given& given : words.options) {
    const bool own = given.name.find('.') == std::string::npos && given.name != "config";
    require(!own || seen.insert(given.name).second, Status::usage, "{}: given twice, expected once",
            given.where);
    if (given.name == "ranks") {
      options.ranks = static_cast<int>(parse_integer(given.value, given.where, 1, 65536));
    } else if (given.name == "ranks-per-node") {
      options.ranks_per_node = static_cast<int>(parse_integer(given.value, given.where, 1, 65536));
    } else if (given.name == "json") {
      options.json = true;
    } else {
      if (given.name == "device-memory") given.name = "device.memory-limit";
      of_job.push_back(std::move(given));
    }
  }
  require(options.ranks > 0, Status::usage, "--ranks is missing, expected the number of ranks");
  if (options.ranks_per_node == 0) options.ranks_per_node = options.ranks;
  Draft draft = read_draft(of_job, words.operands);
  if (draft.texts.empty() && draft.prompt_file.empty()) draft.texts.emplace_back();
  add_clips(draft);
  options.job = std::move(draft.job);
  return options;
}

std::string plan_help() {
  std::ostringstream out;
  out << "Usage: reelmesh plan [--config FILE] [--section.key value ...] --ranks N "
         "[--ranks-per-node M]\n"
         "                     [--device-memory SIZES] [--json]\n\n"
         "Prints what `run` would do on N ranks, without starting it: roles, layers of the text\n"
         "encoder, boxes, memory of each rank, bytes sent and operations of a step. Refuses what "
         "does\n"
         "not fit (status 69), saying what would help. output.path may be missing, and\n"
         "prompts: one that is empty is planned for then. Ranks are counted by their places, have\n"
         "device.threads threads (1 unless given), and speeds as given (auto counts as equal).\n"
      << described_plan();
  return out.str();
}

std::string run_help() {
  std::ostringstream out;
  out << "Usage: mpirun -n N reelmesh run [--config FILE] [--section.key value ...]\n\n"
         "Makes the clips that the job asks for and writes them to OUTPUT/job.h5.\n"
      << described();
  return out.str();
}

}  // namespace reelmesh::app
