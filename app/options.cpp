#include "options.hpp"

#include <algorithm>
#include <array>
#include <boost/program_options/value_semantic.hpp>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "draft.hpp"
#include "earlier.hpp"
#include "given.hpp"
#include "job/machine_file.hpp"
#include "job/options.hpp"
#include "job/requests.hpp"
#include "job/values.hpp"
#include "prompts.hpp"
#include "weights/json.hpp"

namespace reelmesh::app {
namespace po = boost::program_options;
namespace {

std::string option_section(const std::string& name) { return name.substr(0, name.find('.')); }

// The keys of jobs of this kind.
std::vector<Option> keys_of(JobKind kind) {
  std::vector<Option> keys;
  std::ranges::copy_if(reelmesh::options(), std::back_inserter(keys),
                       [&](const Option& key) { return key.is_of(kind); });
  return keys;
}

std::vector<std::string> key_names(JobKind kind) {
  std::vector<std::string> names;
  for (const Option& key : keys_of(kind)) names.emplace_back(key.name);
  return names;
}

const char* section_title(std::string_view section) {
  constexpr std::array<std::pair<std::string_view, const char*>, 12> titles{{
      {"model", "Model [model]"},
      {"prompt", "Prompts [prompt]"},
      {"sample", "Sampling [sample]"},
      {"data", "Clips to learn from [data]"},
      {"train", "Training [train]"},
      {"lora", "What is trained [lora]"},
      {"output", "Output [output]"},
      {"restart", "Stopping and going on [restart]"},
      {"parallel", "Layout over the ranks [parallel]"},
      {"device", "Devices and memory [device]"},
      {"numerics", "Numerics [numerics]"},
      {"trace", "Trace [trace]"},
  }};
  const auto* found = std::ranges::find(titles, section, &decltype(titles)::value_type::first);
  return found->second;
}

std::vector<HelpSection> option_sections(JobKind kind) {
  std::vector<HelpSection> sections;
  std::string section;
  for (const Option& key : keys_of(kind)) {
    if (option_section(key.name) != section) {
      section = option_section(key.name);
      sections.push_back({section_title(section), {}});
    }
    sections.back().lines.push_back(help_of(key));
  }
  return sections;
}

using ByName = std::map<std::string, std::vector<Given>>;

// Groups the options of one source by name. Error(usage) if a key that is not repeatable is given
// twice.
ByName by_name(const std::vector<Given>& givens) {
  ByName found;
  for (const Given& given : givens) {
    auto& values = found[given.name];
    const auto key = std::ranges::find(reelmesh::options(), given.name, &Option::name);
    const bool repeatable = key != reelmesh::options().end() && key->repeatable;
    require(values.empty() || repeatable, Status::usage,
            "{}: given twice ('{}' and '{}'), expected once", given.where,
            values.empty() ? "" : values.front().value, given.value);
    values.push_back(given);
  }
  return found;
}

// Whether an option of training is given; then the others must not be of jobs that make clips.
JobKind kind_of_job(const ByName& line, const ByName& file) {
  std::optional<Given> of_clips, of_training;
  for (const ByName* source : {&file, &line}) {
    for (const auto& [name, values] : *source) {
      const auto key = std::ranges::find(reelmesh::options(), name, &Option::name);
      if (key == reelmesh::options().end()) continue;
      if (key->kind == JobKind::clips) of_clips = values.front();
      if (key->kind == JobKind::training) of_training = values.front();
    }
  }
  require(!of_clips || !of_training, Status::usage,
          "{} and {} are given, expected options of clips to make or of a training",
          of_clips ? of_clips->where : "", of_training ? of_training->where : "");
  return of_training ? JobKind::training : JobKind::clips;
}

bool gives_prompts(const ByName& line) {
  return line.contains("prompt.text") || line.contains("prompt.file");
}

bool gives_model(const ByName& line) {
  return std::ranges::any_of(
      line, [](const auto& option) { return option_section(option.first) == "model"; });
}

// Prompts on the command line replace all prompts of the file, from prompt.text and prompt.file.
void drop_replaced_prompts(ByName& file, const ByName& line) {
  if (!gives_prompts(line)) return;
  file.erase("prompt.text");
  file.erase("prompt.file");
}

// Sets each key from the command line, the file or its default (in this order of precedence), in
// the order of the table.
Draft set_keys(JobKind kind, const ByName& line, const ByName& file) {
  Draft draft;
  if (kind == JobKind::training) {
    draft.job.train.emplace();
    draft.job.restart.every_seconds = training_saved_every_seconds;
  }
  for (const Option& key : keys_of(kind)) {
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

// The options of the command line and of a job file, in the order of the table.
std::vector<std::pair<std::string, std::string>> given_options(const ByName& line,
                                                               const ByName& file) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const Option& key : reelmesh::options()) {
    const ByName& source = line.contains(key.name) ? line : file;
    const auto found = source.find(key.name);
    if (found == source.end()) continue;
    for (const Given& given : found->second) options.emplace_back(given.name, given.value);
  }
  return options;
}

}  // namespace

po::options_description known_job_options(JobKind kind) {
  po::options_description known;
  known.add_options()("config", po::value<std::string>())("max-time", po::value<std::string>())(
      "help", "");
  if (kind != JobKind::training) {
    known.add_options()("from", po::value<std::string>())("clips", po::value<std::string>());
  }
  for (const Option& key : keys_of(kind)) {
    known.add_options()(key.name, po::value<std::string>(), "");
  }
  return known;
}

HelpLine help_of(const Option& key) {
  std::string description = key.help;
  if (key.fallback != nullptr) description += fmt::format(" [default: {}]", key.fallback);
  return {fmt::format("--{} {}", key.name, key.value), description};
}

HelpLine help_of(std::string_view key) {
  return help_of(*std::ranges::find(reelmesh::options(), key, &Option::name));
}

Draft draft_of_keys(JobKind kind, const std::vector<Given>& givens) {
  return set_keys(kind, by_name(givens), {});
}

void add_sampled_clips(Job& job) {
  const std::filesystem::path& file = job.train->sample_prompts;
  if (!file.empty()) job.clips = read_prompts(file, {}, "train.sample-prompts");
  warn_of_empty_prompts(job.clips);
}

void add_clips(Draft& draft) {
  std::vector<ClipRequest>& clips = draft.job.clips;
  for (const std::string& text : draft.texts) {
    add_repeated(clips, {.prompt = text, .negative_prompt = draft.negative}, draft.repeat);
  }
  if (!draft.prompt_file.empty()) {
    auto more = read_prompts(
        draft.prompt_file,
        {.negative = draft.negative, .repeat = draft.repeat, .images = draft.job.image},
        "prompt.file");
    if (clips.empty()) {
      clips = std::move(more);
    } else {
      clips.insert(clips.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
    }
  }
  require(clips.size() <= max_clips, Status::usage, "{} clips are asked for, expected at most {}",
          clips.size(), max_clips);
}

namespace {

constexpr std::int64_t max_job_file = std::int64_t{64} << 20;  // as read_config

double parse_time_limit(std::string_view text, const std::string& option) {
  return text == "none" ? std::numeric_limits<double>::infinity() : parse_wait(text, option);
}

// What --clips changes of the options of an earlier job: its clips are completed, and go to its own
// folder unless the command line says otherwise.
void set_of_chosen(ByName& earlier, const ByName& line, const std::filesystem::path& from) {
  earlier.erase("sample.stop-after");
  const std::filesystem::path folder = from.has_parent_path() ? from.parent_path() : ".";
  const auto set = [&](const char* name, const std::string& value) {
    earlier[name] = {{.name = name, .value = value, .where = name}};
  };
  set("output.path", folder.string());
  const auto output = line.find("output.path");
  std::error_code error;
  if (output == line.end() ||
      std::filesystem::equivalent(output->second.front().value, folder, error)) {
    set("output.if-exists", "resume");
  }
}

}  // namespace

Draft read_draft(JobKind kind, const std::vector<Given>& givens,
                 const std::vector<std::string>& operands) {
  require(operands.empty(), Status::usage,
          "unexpected argument '{}', expected options such as --{}",
          operands.empty() ? "" : operands.front(),
          kind == JobKind::training ? "train.steps 1000" : "sample.steps 50");
  const ByName line = by_name(givens);
  const auto config = line.find("config"), from = line.find("from");
  require(config == line.end() || from == line.end(), Status::usage,
          "--config and --from are given, expected one of them");
  const auto chosen = line.find("clips");
  require(chosen == line.end() || from != line.end(), Status::usage,
          "--clips is given, expected --from with it: the job that has these clips");
  ByName file;
  EarlierJob earlier;
  std::filesystem::path job_file, from_file;
  if (config != line.end()) {
    job_file = parse_path(config->second.front().value, "--config");
    file = by_name(read_config(job_file, "--config", key_names(kind)));
    drop_replaced_prompts(file, line);
  } else if (from != line.end()) {
    from_file = parse_path(from->second.front().value, "--from");
    earlier = read_earlier(from_file, key_names(JobKind::clips));
    file = by_name(earlier.options);
    if (chosen != line.end()) set_of_chosen(file, line, from_file);
  }
  if (kind == JobKind::any) kind = kind_of_job(line, file);
  Draft draft = set_keys(kind, line, file);
  JobSource& source = draft.job.source;
  source.chose_dtype = line.contains("numerics.dtype") || from != line.end();
  source.given = given_options(line, from == line.end() ? file : ByName());
  if (config != line.end()) {
    source.job_file = read_text(job_file, max_job_file);
  }
  if (from != line.end()) {
    source.from = from_file;
    if (!gives_model(line)) source.weights_hash = earlier.weights_hash;
    if (!gives_prompts(line)) {
      require(!line.contains("prompt.repeat"), Status::usage,
              "--prompt.repeat: is given with --from, expected prompt.text or prompt.file with it: "
              "the clips of {} are as they were",
              from_file.string());
      draft.job.clips = std::move(earlier.clips);
      override_requests(draft.job.clips, givens, draft.negative);
    }
    if (chosen != line.end()) {
      require(!gives_prompts(line), Status::usage,
              "--clips and prompts are given, expected clips of {} or prompts", from_file.string());
      require(draft.job.if_exists != IfExists::replace, Status::usage,
              "output.if-exists: found replace, expected fail or resume with --clips");
      draft.job.chosen = parse_clips(chosen->second.front().value, "--clips",
                                     static_cast<int>(draft.job.clips.size()));
    }
  }
  if (const auto limit = line.find("max-time"); limit != line.end()) {
    draft.job.max_time = parse_time_limit(limit->second.front().value, "--max-time");
  }
  require(!draft.job.model.root.empty(), Status::usage,
          "model.path is missing, expected the folder of a checkpoint");
  draft.job.model.complete();
  if (auto& machine = draft.job.machine_file; !machine.empty()) {
    machine = find_machine_file(machine, shared_folders("inputs/machines"));
    draft.job.machine = std::make_shared<const MachineTimes>(
        parse_machine(read_config(machine, "device.machine", machine_keys()), machine.string()));
  }
  if (draft.job.tune) require_machine(draft.job);
  if (draft.job.train) {
    require(draft.job.train->steps > 0, Status::usage,
            "train.steps is missing, expected the number of steps");
  }
  return draft;
}

namespace {

void require_output(const Job& job) {
  require(!job.output.empty(), Status::usage,
          "output.path is missing, expected a folder for the results");
}

// With an example of an option and how a job file has it.
std::string job_file_text(const std::string& option, const std::string& line,
                          const std::string& section) {
  return fmt::format(
      "A job file has [section] lines, \"key = value\" lines and # comment lines:\n"
      "--{} is \"{}\" in section [{}]. Options on the command\n"
      "line win. Relative paths are relative to the current folder.",
      option, line, section);
}

const char* const max_time_help =
    "stop after this time, such as 11h or 11:00:00, as on a signal (restart.on-signal). By default "
    "a job of "
    "Slurm 23.02 or later stops a minute before its end";

// The options of a command that starts jobs, `own` among them, and those of the jobs.
std::vector<HelpSection> all_sections(JobKind kind, const std::vector<HelpLine>& own) {
  std::vector<HelpLine> lines{{"--config FILE", "job file"}};
  lines.insert(lines.end(), own.begin(), own.end());
  lines.push_back({"--max-time TIME|none", max_time_help});
  lines.push_back({"--help", "print this text"});
  std::vector<HelpSection> sections = option_sections(kind);
  sections.insert(sections.begin(), {"Options", lines});
  return sections;
}

}  // namespace

Job parse_run(int argc, const char* const* argv,
              const std::function<void(const Job&)>& before_prompts) {
  const CommandLine words = read_command_line(argc, argv, known_job_options(JobKind::clips));
  Draft draft = read_draft(JobKind::clips, words.options, words.operands);
  require_output(draft.job);
  require(!draft.texts.empty() || !draft.prompt_file.empty() || !draft.job.clips.empty(),
          Status::usage, "no prompt is given, expected prompt.text or prompt.file");
  if (!draft.job.source.from.empty() && draft.job.chosen.empty()) {
    require_other_folder(draft.job.source.from, draft.job.output);
  }
  if (before_prompts) before_prompts(draft.job);
  add_clips(draft);
  warn_of_empty_prompts(draft.job.clips);
  return std::move(draft.job);
}

Job parse_train(int argc, const char* const* argv) {
  const CommandLine words = read_command_line(argc, argv, known_job_options(JobKind::training));
  Draft draft = read_draft(JobKind::training, words.options, words.operands);
  require_output(draft.job);
  require(!draft.job.train->data.paths.empty(), Status::usage,
          "data.path is missing, expected the clips to learn from: a .jsonl or .csv file, or a "
          "folder");
  add_sampled_clips(draft.job);
  return std::move(draft.job);
}

HelpPage train_help() {
  return {.purpose =
              "Trains a LoRA of a checkpoint on videos with captions, with the same bits on any\n"
              "number of ranks, and writes it to lora/ in output.path.",
          .usage = "mpirun -n N reelmesh train [--config FILE] [--section.key value ...]",
          .notes = job_file_text("train.steps 1000", "steps = 1000", "train"),
          .sections = all_sections(JobKind::training, {}),
          .examples =
              "mpirun -n 4 reelmesh train --model.path models/CogVideoX-2b --output.path out \\\n"
              "    --data.path clips --train.steps 1000\n"
              "mpirun -n 8 reelmesh train --config train.cfg --output.if-exists resume\n"
              "mpirun -n 4 reelmesh run --model.path models/CogVideoX-2b --output.path out2 \\\n"
              "    --model.lora out/lora --prompt.text 'A red fox walks through snow'"};
}

HelpPage run_help() {
  const char* const from =
      "run the job of this file again, with its prompts, settings and layout options, into another "
      "output.path. Options on the command line win, also over the settings of its clips";
  const char* const clips =
      "with --from: complete only these clips, such as 3,7,12-15, from their states that "
      "sample.stop-after or restart.every has saved, in the folder of that job or another "
      "output.path";
  return {
      .purpose = "Makes the clips of a job and writes them to output.path.",
      .usage = "mpirun -n N reelmesh run [--config FILE] [--section.key value ...]",
      .notes = job_file_text("sample.steps 20", "steps = 20", "sample"),
      .sections = all_sections(JobKind::clips, {{"--from JOB.h5", from}, {"--clips LIST", clips}}),
      .examples =
          "mpirun -n 4 reelmesh run --model.path models/CogVideoX-2b --output.path out \\\n"
          "    --prompt.text 'A red fox walks through snow'\n"
          "srun --mpi=pmix reelmesh run --config job.cfg --output.if-exists resume\n"
          "mpirun -n 8 reelmesh run --from out/job.h5 --output.path again\n"
          "mpirun -n 4 reelmesh run --from out/job.h5 --clips 3,7,12"};
}

}  // namespace reelmesh::app
