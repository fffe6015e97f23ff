#include "options.hpp"

#include <algorithm>
#include <array>
#include <boost/program_options/value_semantic.hpp>
#include <limits>
#include <map>
#include <set>

#include "base/error.hpp"
#include "earlier.hpp"
#include "given.hpp"
#include "help.hpp"
#include "job/machine_file.hpp"
#include "job/options.hpp"
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

// The options for Boost's parser; --help is printed by format_help.
po::options_description known_options(JobKind kind) {
  po::options_description known;
  known.add_options()("config", po::value<std::string>())("max-time", po::value<std::string>())(
      "help", "");
  if (kind != JobKind::training) known.add_options()("from", po::value<std::string>());
  for (const Option& key : keys_of(kind)) {
    known.add_options()(key.name, po::value<std::string>(), "");
  }
  return known;
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
    std::string description = key.help;
    if (key.fallback != nullptr) description += fmt::format(" [default: {}]", key.fallback);
    sections.back().lines.push_back({fmt::format("--{} {}", key.name, key.value), description});
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
  if (kind == JobKind::training) draft.job.train.emplace();
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

// The clips that a training makes.
void add_sampled_clips(Job& job) {
  const std::filesystem::path& file = job.train->sample_prompts;
  if (!file.empty()) job.clips = read_prompts(file, {}, "train.sample-prompts");
}

void add_clips(Draft& draft) {
  std::vector<ClipRequest>& clips = draft.job.clips;
  for (const std::string& text : draft.texts) {
    clips.push_back({.prompt = text, .negative_prompt = draft.negative});
  }
  if (!draft.prompt_file.empty()) {
    auto more = read_prompts(draft.prompt_file, draft.negative, "prompt.file");
    if (clips.empty()) {
      clips = std::move(more);
    } else {
      clips.insert(clips.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
    }
  }
  constexpr std::size_t max_clips = 1000000;  // clip files are named by six digits
  require(clips.size() <= max_clips, Status::usage, "{} prompts are given, expected at most {}",
          clips.size(), max_clips);
}

}  // namespace

namespace {

constexpr std::int64_t max_job_file = std::int64_t{64} << 20;  // as read_config

double parse_time_limit(std::string_view text, const std::string& option) {
  return text == "none" ? std::numeric_limits<double>::infinity() : parse_wait(text, option);
}

// The job from the command line and the file of --config or --from; clips only from the latter.
// kind: any if the options decide.
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
  }
  if (kind == JobKind::any) kind = kind_of_job(line, file);
  Draft draft = set_keys(kind, line, file);
  JobSource& source = draft.job.source;
  source.given = given_options(line, from == line.end() ? file : ByName());
  if (config != line.end()) {
    source.job_file = read_text(job_file, max_job_file);
  }
  if (from != line.end()) {
    source.from = from_file;
    if (!gives_model(line)) source.weights_hash = earlier.weights_hash;
    if (!gives_prompts(line)) {
      draft.job.clips = std::move(earlier.clips);
      override_requests(draft.job.clips, givens, draft.negative);
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

void require_output(const Job& job) {
  require(!job.output.empty(), Status::usage,
          "output.path is missing, expected a folder for the results");
}

po::options_description known_plan_options() {
  po::options_description known = known_options(JobKind::any);
  known.add_options()("ranks", po::value<std::string>())(
      "ranks-per-node", po::value<std::string>())("device-memory", po::value<std::string>())(
      "json", po::bool_switch())("calibrate", po::value<std::string>())(
      "compare", po::bool_switch())("deadline", po::value<std::string>())(
      "simulate", po::value<std::string>())("mtbf", po::value<std::string>())(
      "requeue", po::value<std::string>())("trace", po::value<std::string>());
  return known;
}

// With an example of an option and how a job file has it.
std::string job_file_text(const std::string& option, const std::string& line,
                          const std::string& section) {
  return fmt::format(
      "A job file has [section] lines, \"key = value\" lines and # comment lines:\n"
      "--{} is \"{}\" in section [{}]. Options on the command\n"
      "line win. Relative paths are relative to the current folder.\n\n",
      option, line, section);
}

const char* const max_time_help =
    "stop after this time, such as 11h or 11:00:00, as on a signal (restart.on-signal). By default "
    "a job of "
    "Slurm 23.02 or later stops a minute before its end";

}  // namespace

Job parse_run(int argc, const char* const* argv,
              const std::function<void(const Job&)>& before_prompts) {
  const CommandLine words = read_command_line(argc, argv, known_options(JobKind::clips));
  Draft draft = read_draft(JobKind::clips, words.options, words.operands);
  require_output(draft.job);
  require(!draft.texts.empty() || !draft.prompt_file.empty() || !draft.job.clips.empty(),
          Status::usage, "no prompt is given, expected prompt.text or prompt.file");
  if (!draft.job.source.from.empty()) {
    require_other_folder(draft.job.source.from, draft.job.output);
  }
  if (before_prompts) before_prompts(draft.job);
  add_clips(draft);
  return std::move(draft.job);
}

Job parse_train(int argc, const char* const* argv) {
  const CommandLine words = read_command_line(argc, argv, known_options(JobKind::training));
  Draft draft = read_draft(JobKind::training, words.options, words.operands);
  require_output(draft.job);
  require(!draft.job.train->data.path.empty(), Status::usage,
          "data.path is missing, expected the clips to learn from: a .jsonl or .csv file, or a "
          "folder");
  add_sampled_clips(draft.job);
  return std::move(draft.job);
}

namespace {

// "4", or "1,2,4,8" in increasing order.
std::vector<int> parse_rank_counts(const Given& given) {
  std::vector<int> counts;
  std::istringstream words(given.value);
  for (std::string word; std::getline(words, word, ',');) {
    counts.push_back(static_cast<int>(parse_integer(word, given.where, 1, 65536)));
    require(counts.size() == 1 || counts.back() > counts[counts.size() - 2], Status::usage,
            "{}: found '{}', expected increasing numbers of ranks", given.where, given.value);
  }
  require(!counts.empty() && !given.value.ends_with(','), Status::usage,
          "{}: found '{}', expected numbers of ranks such as 4 or 1,2,4,8", given.where,
          given.value);
  return counts;
}

// The device's options, which are all that a calibration takes.
Job parse_calibration(const std::vector<Given>& givens, const std::vector<std::string>& operands) {
  require(operands.empty(), Status::usage, "unexpected argument '{}' beside --calibrate",
          operands.empty() ? "" : operands.front());
  for (const Given& given : givens) {
    require(given.name == "device.threads" || given.name == "device.backend" ||
                given.name == "device.transport",
            Status::usage,
            "{}: is given with --calibrate, expected only device.threads, device.backend and "
            "device.transport",
            given.where);
  }
  return set_keys(JobKind::clips, by_name(givens), {}).job;
}

// The job that was run in a folder. own: the options of plan that are given.
Job parse_correction(const std::filesystem::path& folder, const std::set<std::string>& own,
                     std::vector<Given> givens, const std::vector<std::string>& operands) {
  const auto refuse = [](const std::string& name) {
    fail(Status::usage,
         "--{}: is given with --trace, expected only device.machine, model.path, --calibrate and "
         "--json",
         name);
  };
  for (const std::string& name : own) {
    if (name != "trace" && name != "calibrate" && name != "json") refuse(name);
  }
  for (const Given& given : givens) {
    if (given.name != "device.machine" && given.name != "model.path") refuse(given.name);
  }
  givens.push_back({"from", (folder / "job.h5").string(), "--trace"});
  Draft draft = read_draft(JobKind::clips, givens, operands);
  add_clips(draft);
  return std::move(draft.job);
}

}  // namespace

PlanOptions parse_plan(int argc, const char* const* argv, const Allocation& allocation) {
  CommandLine words = read_command_line(argc, argv, known_plan_options());
  PlanOptions options;
  std::vector<Given> of_job;
  std::set<std::string> seen;
  for (Given& given : words.options) {
    const bool own = given.name.find('.') == std::string::npos && given.name != "config" &&
                     given.name != "from" && given.name != "max-time";
    require(!own || seen.insert(given.name).second, Status::usage, "{}: given twice, expected once",
            given.where);
    if (given.name == "ranks") {
      options.ranks = parse_rank_counts(given);
    } else if (given.name == "ranks-per-node") {
      options.ranks_per_node = static_cast<int>(parse_integer(given.value, given.where, 1, 65536));
    } else if (given.name == "json") {
      options.json = true;
    } else if (given.name == "compare") {
      options.compare = true;
    } else if (given.name == "deadline") {
      options.deadline = parse_wait(given.value, given.where);
    } else if (given.name == "trace") {
      options.trace = parse_path(given.value, given.where);
    } else if (given.name == "simulate") {
      options.simulate = parse_path(given.value, given.where);
    } else if (given.name == "mtbf") {
      options.failures.every = parse_wait(given.value, given.where);
    } else if (given.name == "requeue") {
      options.failures.pause = parse_wait(given.value, given.where);
    } else if (given.name == "calibrate") {
      options.calibrate = parse_path(given.value, given.where);
    } else {
      if (given.name == "device-memory") given.name = "device.memory-limit";
      of_job.push_back(std::move(given));
    }
  }
  if (!options.trace.empty()) {
    options.job = parse_correction(options.trace, seen, of_job, words.operands);
    return options;
  }
  if (!options.calibrate.empty()) {
    for (const std::string& own : seen) {
      require(own == "calibrate", Status::usage,
              "--{}: is given with --calibrate, expected only device.threads, device.backend and "
              "device.transport",
              own);
    }
    options.job = parse_calibration(of_job, words.operands);
    return options;
  }
  const bool of_allocation = options.ranks.empty() && !options.deadline && allocation.ranks;
  if (of_allocation) {
    options.ranks = {*allocation.ranks};
    if (!options.ranks_per_node) options.ranks_per_node = allocation.ranks_per_node;
    options.node_bytes = allocation.node_bytes.value_or(0);
  }
  require(!options.ranks.empty() || options.deadline, Status::usage,
          "--ranks is missing, expected the number of ranks");
  require(options.ranks.size() == 1 ||
              (!options.compare && (options.ranks.empty() || !options.deadline)),
          Status::usage, "--ranks: several numbers are given with {}, expected one",
          options.compare ? "--compare" : "--deadline");
  require(!options.compare || !options.deadline, Status::usage,
          "--compare and --deadline are given, expected one of them");
  require(options.simulate.empty() || (options.ranks.size() == 1 && !options.compare),
          Status::usage,
          "--simulate: expected one number of --ranks, and no --compare or --deadline");
  for (const char* own : {"mtbf", "requeue"}) {
    require(!seen.contains(own) || !options.simulate.empty(), Status::usage,
            "--{}: is given without --simulate", own);
  }
  Draft draft = read_draft(JobKind::any, of_job, words.operands);
  const bool has_clips =
      !draft.texts.empty() || !draft.prompt_file.empty() || !draft.job.clips.empty();
  if (!draft.job.train && !has_clips) {
    draft.texts.emplace_back();
  }
  draft.job.train ? add_sampled_clips(draft.job) : add_clips(draft);
  options.job = std::move(draft.job);
  if (const MachineTimes* const machine = options.job.machine.get()) {
    if (machine->on_gpu && options.job.backend == Backend::automatic) {
      options.job.backend = Backend::cuda;
    }
    if (machine->memory > 0 && options.job.memory_limits.empty()) {
      options.job.memory_limits = {machine->memory};
    }
  }
  if (of_allocation && !options.job.threads) options.job.threads = allocation.threads;
  return options;
}

std::string plan_help() {
  std::vector<HelpSection> sections{
      {"Options",
       {{"--ranks N",
         "ranks of the job, 1 to 65536 [default: those of Slurm or mpirun]; several, such as "
         "1,2,4,8, are compared, with device.machine"},
        {"--compare", "a table of the layouts that fit, the fastest first, with device.machine"},
        {"--deadline TIME",
         "plan with the fewest ranks, at most --ranks, with which the job is "
         "predicted to take at most this time, such as 2h"},
        {"--trace OUT",
         "compare the predicted times of the job in the folder OUT with those of its trace; with "
         "--calibrate, write a machine file with the times of device.machine in their ratio"},
        {"--simulate OUT",
         "play the job with predicted times and write OUT/job.h5 and OUT/trace.h5, without clips, "
         "for reelmesh-report and reelmesh-trace, with device.machine"},
        {"--mtbf TIME",
         "of --simulate: mean time between failures of a rank, such as 5000h [default: none "
         "fails]"},
        {"--requeue TIME", "of --simulate: from a failure to the next start [default: 1min]"},
        {"--ranks-per-node M", "ranks of a node [default: all ranks on one node]"},
        {"--device-memory SIZES", "the same as --device.memory-limit"},
        {"--calibrate FILE",
         "measure this machine on all ranks of mpirun, in about a minute, and write a machine file "
         "for device.machine"},
        {"--json", "print JSON with the boxes and memory of every rank"},
        {"--config FILE", "job file"},
        {"--from JOB.h5", "an earlier job instead of a job file"},
        {"--help", "print this text"}}}};
  const std::vector<HelpSection> of_job = option_sections(JobKind::any);
  sections.insert(sections.end(), of_job.begin(), of_job.end());
  return "Prints the layout that run or train would use on N ranks, without MPI or GPUs:\n"
         "roles, device map, boxes, memory, bytes sent. Refuses a job that does not fit\n"
         "(status 69), naming what would make it fit.\n\n"
         "Usage: reelmesh plan --ranks N [--config FILE] [--section.key value ...]\n"
         "       mpirun -n N reelmesh plan --calibrate FILE\n\n"
         "The options are those of run; prompts and output.path may be missing (the plan\n"
         "is then for one clip with an empty prompt). With an option of [data], [train] or\n"
         "[lora] they are those of train; data.path may be missing. device.threads is 1\n"
         "unless given, and device.speeds = auto counts as equal.\n\n" +
         job_file_text("sample.steps 20", "steps = 20", "sample") +
         format_help(sections, help_style()) +
         "\nExamples\n"
         "  reelmesh plan --model.path models/CogVideoX-2b --ranks 6\n"
         "  reelmesh plan --config job.cfg --ranks 32 --device-memory 16GiB\n"
         "  mpirun -n 8 reelmesh plan --calibrate node.cfg\n"
         "  reelmesh plan --config job.cfg --ranks 32 --device.machine node.cfg\n";
}

std::string train_help() {
  std::vector<HelpSection> sections{{"Options",
                                     {{"--config FILE", "job file"},
                                      {"--max-time TIME|none", max_time_help},
                                      {"--help", "print this text"}}}};
  const std::vector<HelpSection> of_job = option_sections(JobKind::training);
  sections.insert(sections.end(), of_job.begin(), of_job.end());
  return "Trains a LoRA of a checkpoint on videos with captions, with the same bits on any\n"
         "number of ranks, and writes it to lora/ in output.path.\n\n"
         "Usage: mpirun -n N reelmesh train [--config FILE] [--section.key value ...]\n\n" +
         job_file_text("train.steps 1000", "steps = 1000", "train") +
         format_help(sections, help_style()) +
         "\nExamples\n"
         "  mpirun -n 4 reelmesh train --model.path models/CogVideoX-2b --output.path out \\\n"
         "      --data.path clips --train.steps 1000\n"
         "  mpirun -n 8 reelmesh train --config train.cfg --output.if-exists resume\n"
         "  mpirun -n 4 reelmesh run --model.path models/CogVideoX-2b --output.path out2 \\\n"
         "      --model.lora out/lora --prompt.text 'A red fox walks through snow'\n";
}

std::string run_help() {
  const char* const from =
      "run the job of this file again, with its prompts, settings and layout options, into another "
      "output.path. Options on the command line win, also over the settings of its clips";
  std::vector<HelpSection> sections{{"Options",
                                     {{"--config FILE", "job file"},
                                      {"--from JOB.h5", from},
                                      {"--max-time TIME|none", max_time_help},
                                      {"--help", "print this text"}}}};
  const std::vector<HelpSection> of_job = option_sections(JobKind::clips);
  sections.insert(sections.end(), of_job.begin(), of_job.end());
  return "Makes the clips of a job and writes them to output.path.\n\n"
         "Usage: mpirun -n N reelmesh run [--config FILE] [--section.key value ...]\n\n" +
         job_file_text("sample.steps 20", "steps = 20", "sample") +
         format_help(sections, help_style()) +
         "\nExamples\n"
         "  mpirun -n 4 reelmesh run --model.path models/CogVideoX-2b --output.path out \\\n"
         "      --prompt.text 'A red fox walks through snow'\n"
         "  srun --mpi=pmix reelmesh run --config job.cfg --output.if-exists resume\n"
         "  mpirun -n 8 reelmesh run --from out/job.h5 --output.path again\n";
}

}  // namespace reelmesh::app
