// Options of inspect and make-model.
#include <boost/program_options/value_semantic.hpp>
#include <initializer_list>
#include <set>

#include "base/error.hpp"
#include "given.hpp"
#include "help.hpp"
#include "job/values.hpp"
#include "models/checkpoints/presets.hpp"
#include "options.hpp"

namespace reelmesh::app {
namespace po = boost::program_options;
namespace {

po::options_description known_options(std::initializer_list<const char*> names) {
  po::options_description known;
  for (const char* name : names) known.add_options()(name, po::value<std::string>(), "");
  known.add_options()("help", "");
  return known;
}

std::vector<std::string> operands(const CommandLine& line, std::size_t count,
                                  std::string_view expected) {
  require(line.operands.size() == count, Status::usage, "found {} arguments, expected {}",
          line.operands.size(), expected);
  for (const std::string& operand : line.operands) {
    require(!operand.empty(), Status::usage, "an argument is empty, expected {}", expected);
    require_text(operand, "argument");
  }
  std::set<std::string> seen;
  for (const Given& given : line.options) {
    if (given.name == "lora") continue;
    require(seen.insert(given.name).second, Status::usage, "{}: given twice, expected once",
            given.where);
  }
  return line.operands;
}

}  // namespace

InspectOptions parse_inspect(int argc, const char* const* argv) {
  const CommandLine line = read_command_line(argc, argv, known_options({"lora"}));
  InspectOptions options{.model = operands(line, 1, "MODEL_DIR or LORA").front(), .loras = {}};
  for (const Given& option : line.options) {
    options.loras.push_back(parse_lora(option.value, option.where));
  }
  return options;
}

HelpPage inspect_help() {
  return {.purpose =
              "Prints what a checkpoint holds: classes, configs, tensors, parameters, bytes;\n"
              "and what is missing, invalid or unexpected. Also of a LoRA: ranks, factors, and\n"
              "the modules that it changes.",
          .usage =
              "reelmesh inspect MODEL_DIR [--lora FILE[:SCALE]]...\n"
              "reelmesh inspect LORA",
          .notes =
              "Exit status: 0 if run can make clips with it, 65 if a part is invalid, 66 if one\n"
              "is missing.",
          .sections = {{"Options",
                        {{"--lora FILE[:SCALE]",
                          "a LoRA, which must fit the model's transformer; repeat the option for "
                          "more"},
                         {"--help", "print this text"}}}},
          .examples =
              "reelmesh inspect models/CogVideoX-2b\n"
              "reelmesh inspect models/CogVideoX-2b --lora ink.safetensors:0.8\n"
              "reelmesh inspect ink.safetensors",
          .operands = {{"MODEL_DIR|LORA", "", {}}}};
}

MakeModelOptions parse_make_model(int argc, const char* const* argv) {
  po::options_description known = known_options({"seed", "dtype", "layers", "text-layers", "text"});
  known.add_options()("no-sync", "");
  const CommandLine line = read_command_line(argc, argv, known);
  const std::vector<std::string> given = operands(line, 2, "PRESET DIR");
  MakeModelOptions options{.preset = given[0], .folder = given[1]};
  for (const Given& option : line.options) {
    if (option.name == "seed") {
      options.seed =
          parse_setting(setting_description(&ClipSettings::seed), option.value, option.where);
    }
    if (option.name == "dtype") {
      options.dtype = parse_dtype(option.value, option.where);
    }
    if (option.name == "layers")
      options.layers = parse_integer(option.value, option.where, 1, 1000);
    if (option.name == "text-layers") {
      options.text_layers = parse_integer(option.value, option.where, 1, 1000);
    }
    if (option.name == "text") {
      options.text = parse_path(option.value, option.where);
    }
    if (option.name == "no-sync") options.sync = false;
  }
  return options;
}

HelpPage make_model_help() {
  return {.purpose =
              "Writes a checkpoint with random weights in the diffusers layout, for tests and\n"
              "measurements.",
          .usage = "reelmesh make-model PRESET DIR [OPTIONS]",
          .notes = "DIR must be new or empty.",
          .sections =
              {{"Presets",
                {{"for tests",
                  "tiny-cogvideox, tiny-cogvideox-rotary, tiny-cogvideox-1.5, tiny-cogvideox-i2v, "
                  "tiny-cogvideox-1.5-i2v, tiny-stdit, tiny-stdit3, tiny-wan, tiny-wan-i2v, "
                  "tiny-wan2.2-ti2v, tiny-wan2.2-a14b, tiny-wan2.2-i2v-a14b"},
                 {"CogVideoX",
                  "cogvideox-2b, cogvideox-5b, cogvideox-1.5-5b; from an image: cogvideox-5b-i2v, "
                  "cogvideox-1.5-5b-i2v"},
                 {"Open-Sora",
                  "opensora-1.0-16x256x256, opensora-1.0-16x512x512, opensora-1.0-64x512x512, "
                  "opensora-1.2"},
                 {"Wan",
                  "wan2.1-t2v-1.3b, wan2.1-t2v-14b, wan2.2-ti2v-5b, wan2.2-t2v-a14b; from "
                  "an image: wan2.1-i2v-14b-480p, wan2.1-i2v-14b-720p, wan2.2-i2v-a14b"}}},
               {"Options",
                {{"--seed N", "seed of the weights [default: 42]"},
                 {"--dtype float32|bfloat16|float16",
                  "type of the weights [default: as released; tiny presets: float32]"},
                 {"--layers N", "layers of the transformer [default: the preset's]"},
                 {"--text-layers N", "layers of the text encoder [default: the preset's]"},
                 {"--text FILE",
                  "text to train the tokenizer on, one sentence a line [default: a built-in text]"},
                 {"--no-sync",
                  "do not wait until files are on the disk: faster, for a folder in memory such as "
                  "/dev/shm and for models of a measurement"},
                 {"--help", "print this text"}}}},
          .examples =
              "reelmesh make-model tiny-cogvideox tiny\n"
              "reelmesh make-model cogvideox-2b 2b-2layers --layers 2 --text-layers 2",
          .operands = {{"PRESET", "", preset_names()}, {"DIR", "", {}}}};
}

}  // namespace reelmesh::app
