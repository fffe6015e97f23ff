// Options of the subcommands that look at or make a checkpoint.
#include <array>
#include <boost/program_options/value_semantic.hpp>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "given.hpp"
#include "options.hpp"
#include "values.hpp"

namespace reelmesh::app {
namespace po = boost::program_options;
namespace {

po::options_description inspect_options() {
  po::options_description all("Options");
  all.add_options()("help", "this text");
  return all;
}

po::options_description make_model_options() {
  po::options_description all("Options");
  all.add_options()("seed", po::value<std::string>()->value_name("N")->default_value("42"),
                    "seed of the weights")(
      "dtype", po::value<std::string>()->value_name("TYPE"),
      "type of the weights in the files: float32, bfloat16 or float16; default: float32 for tiny "
      "presets, else that of the released weights")(
      "layers", po::value<std::string>()->value_name("N"),
      "layers of the transformer, for measurements; default: the preset's")(
      "text-layers", po::value<std::string>()->value_name("N"),
      "layers of the text encoder; default: the preset's")(
      "text", po::value<std::string>()->value_name("FILE"),
      "text that the tokenizer is made from, one sentence a line; default: "
      "inputs/tokenizer_text.txt of the source, which is compiled in")("help", "this text");
  return all;
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
    require(seen.insert(given.name).second, Status::usage, "{}: given twice, expected once",
            given.where);
  }
  return line.operands;
}

}  // namespace

InspectOptions parse_inspect(int argc, const char* const* argv) {
  const CommandLine line = read_command_line(argc, argv, inspect_options());
  return {.model = operands(line, 1, "MODEL_DIR").front()};
}

std::string inspect_help() {
  std::ostringstream out;
  out << "Usage: reelmesh inspect MODEL_DIR\n\n"
         "Prints what a checkpoint holds: classes, configs, tensors, parameters, bytes, and what\n"
         "is missing or unexpected.\n\n"
      << inspect_options();
  return out.str();
}

MakeModelOptions parse_make_model(int argc, const char* const* argv) {
  const CommandLine line = read_command_line(argc, argv, make_model_options());
  const std::vector<std::string> given = operands(line, 2, "PRESET DIR");
  MakeModelOptions options{.preset = given[0], .folder = given[1]};
  for (const Given& option : line.options) {
    if (option.name == "seed") options.seed = parse_seed(option.value, option.where);
    if (option.name == "dtype") {
      constexpr std::array<std::string_view, 3> names{"float32", "bfloat16", "float16"};
      constexpr std::array types{DType::float32, DType::bfloat16, DType::float16};
      options.dtype = types[parse_choice(option.value, option.where, names)];
    }
    if (option.name == "layers")
      options.layers = parse_integer(option.value, option.where, 1, 1000);
    if (option.name == "text-layers") {
      options.text_layers = parse_integer(option.value, option.where, 1, 1000);
    }
    if (option.name == "text") {
      require_text(option.value, option.where);
      options.text = option.value;
    }
  }
  return options;
}

std::string make_model_help() {
  std::ostringstream out;
  out << "Usage: reelmesh make-model PRESET DIR [OPTIONS]\n\n"
         "Writes a checkpoint with random weights in the Hugging Face layout, into a folder that "
         "is\n"
         "new or empty.\n\n"
         "Presets: tiny-cogvideox, tiny-cogvideox-rotary, tiny-cogvideox-1.5, tiny-stdit,\n"
         "tiny-stdit3 (for tests), and the sizes of the released models: cogvideox-2b,\n"
         "cogvideox-5b, cogvideox-1.5-5b, opensora-1.0-16x256x256, opensora-1.0-16x512x512,\n"
         "opensora-1.0-64x512x512, opensora-1.2.\n\n"
      << make_model_options();
  return out.str();
}

}  // namespace reelmesh::app
