#include "job/train_options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>

#include "base/error.hpp"
#include "base/number.hpp"
#include "job/clip.hpp"
#include "job/training_replica.hpp"
#include "job/values.hpp"
#include "weights/lora.hpp"

namespace reelmesh {
namespace {

using Text = std::string_view;
using Where = const std::string&;
using Setter = decltype(Option::set);

constexpr std::array<Text, 3> recomputing{"auto", "yes", "no"};
constexpr std::array<Text, 2> posteriors{"sample", "mode"};
/// Linear layers of a block that a LoRA may change: of CogVideoX and Wan, then of Open-Sora.
constexpr std::array<Text, 16> targets{
    "to_q",           "to_k",      "to_v",       "to_out.0",   "ff.net.0.proj", "ff.net.2",
    "ffn.net.0.proj", "ffn.net.2", "add_k_proj", "add_v_proj", "qkv",           "proj",
    "q_linear",       "kv_linear", "fc1",        "fc2"};
constexpr std::int64_t max_steps = 100'000'000;
constexpr double max_decay = 0.999999, max_lora_dropout = 0.99;

TrainSettings& train_of(Draft& draft) {
  expect(draft.job.train.has_value(), "an option of training is set for a job that makes clips");
  return *draft.job.train;
}

// A setting of a training job by its member.
template <class Settings, class T>
auto& setting(Settings& settings, T TrainSettings::*member) {
  return settings.*member;
}
template <class Settings, class T>
auto& setting(Settings& settings, T DataSettings::*member) {
  return settings.data.*member;
}
template <class Settings, class T>
auto& setting(Settings& settings, T LoraSettings::*member) {
  return settings.lora.*member;
}
template <class Settings, class T>
auto& setting(Settings& settings, T ops::OptimizerSettings::*member) {
  return settings.optimizer_settings.*member;
}

template <class Settings, class T>
auto& setting(Settings& settings, T ops::RateShape::*member) {
  return settings.rate_shape.*member;
}

std::string text_of(bool yes) { return yes ? "yes" : "no"; }
template <class Number>
requires std::is_arithmetic_v<Number> std::string text_of(Number value) {
  return fmt::format("{}", value);
}
template <class Value>
std::string text_of(const std::optional<Value>& value) {
  return value ? text_of(*value) : "";
}
// Of lists: without commas, which separate settings.
template <class T>
std::string text_of(const LoraPatterns<T>& patterns) {
  return pattern_text(patterns, "+");
}
std::string text_of(const std::vector<VideoSize>& buckets) {
  std::string text;
  for (const VideoSize& size : buckets) {
    text += fmt::format("{}{}", text.empty() ? "" : "+", shown(size));
  }
  return text;
}

template <auto member>
std::string value_of(const Job& job, const Computation&) {
  return text_of(setting(*job.train, member));
}
// The same of a setting that is no part of the fingerprint while it has its default: "" then.
template <auto member>
std::string changed_value(const Job& job, const Computation& by) {
  const TrainSettings defaults{};
  return setting(*job.train, member) == setting(defaults, member) ? "" : value_of<member>(job, by);
}
// The same of a setting of optimizers: "" if the chosen one does not read it.
template <auto member>
std::string value_for_optimizer(const Job& job, const Computation& by) {
  return job.train->optimizer->uses(member) ? value_of<member>(job, by) : "";
}

// The same of a setting that only a LoRA has.
bool trains_lora(const Job& job) { return lora_shape(*job.train).has_value(); }
template <auto member>
std::string value_for_lora(const Job& job, const Computation& by) {
  return trains_lora(job) ? value_of<member>(job, by) : "";
}

template <auto member, std::int64_t min, std::int64_t max>
void set_integer(Draft& draft, Text text, Where option) {
  setting(train_of(draft), member) = parse_integer(text, option, min, max);
}
template <auto member>
void set_switch(Draft& draft, Text text, Where option) {
  setting(train_of(draft), member) = parse_switch(text, option);
}
template <auto member>
void set_probability(Draft& draft, Text text, Where option) {
  setting(train_of(draft), member) = parse_number(text, option, 0, 1);
}
template <auto member>
void set_decay(Draft& draft, Text text, Where option) {
  setting(train_of(draft), member) = parse_number(text, option, 0, max_decay);
}
template <auto member>
void set_name(Draft& draft, Text text, Where) {
  setting(train_of(draft), member) = text;
}
template <auto member, PathUse use>
void set_path(Draft& draft, Text text, Where option) {
  setting(train_of(draft), member) = draft.path(use, text, option);
}
// One of a few values, in the order of their names.
template <auto member, const auto& names>
void set_choice(Draft& draft, Text text, Where option) {
  auto& value = setting(train_of(draft), member);
  value = static_cast<std::decay_t<decltype(value)>>(parse_choice(text, option, names));
}
// Its name, unless it is the first one, the default.
template <auto member, const auto& names>
std::string changed_choice(const Job& job, const Computation&) {
  const auto index = static_cast<std::size_t>(setting(*job.train, member));
  return index == 0 ? "" : std::string(names.at(index));
}
// With the limits of a setting of clips.
template <auto member, auto of_clip>
void set_as_of_clip(Draft& draft, Text text, Where option) {
  setting(train_of(draft), member) = parse_setting(setting_description(of_clip), text, option);
}

// An option that changes bits of what is trained.
template <auto member>
Option changes_bits(const char* name, const char* value, const char* help, const char* fallback,
                    Setter set, decltype(Option::in_effect) in_effect = value_of<member>) {
  return {name, value, help, fallback, Effect::fingerprint, set, false, in_effect};
}

// The same of the learning rate.
Option of_rate(Option option) {
  option.of_rate = true;
  return option;
}

template <auto member, auto of_clip>
Option format_option(const char* name, const char* value, const std::string& help) {
  static const std::string text = fmt::format(
      fmt::runtime(help), fmt::arg("limits", setting_limits(setting_description(of_clip))));
  return changes_bits<member>(name, value, text.c_str(), nullptr, set_as_of_clip<member, of_clip>);
}

// An option of the clips that a training makes, with the limits of a setting of clips.
template <auto member, auto of_clip>
Option clip_option(const char* name, const std::string& help) {
  Option option = format_option<member, of_clip>(name, "N", help);
  option.effect = Effect::no_bits;
  option.in_effect = nullptr;
  return option;
}

// The row of a table that has this name.
template <class Row>
const Row& parse_row(std::span<const Row> table, Text text, Where option) {
  std::vector<Text> names;
  for (const Row& row : table) names.push_back(row.name);
  return table[parse_choice(text, option, names)];
}

void set_clip(Draft& draft, Text text, Where option) {
  std::optional<double>& clip = train_of(draft).clip;
  clip.reset();
  if (text != "none") clip = parse_number(text, option, 1e-6, 1e6);
}

// The items of a list that commas separate.
std::vector<Text> items_of(Text text) {
  std::vector<Text> items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

// "49x480x720,17x256x256", without repetitions.
void set_buckets(Draft& draft, Text text, Where option) {
  std::vector<VideoSize>& found = train_of(draft).data.buckets;
  found.clear();
  const auto number = [&](auto member, Text value, const char* what) {
    return parse_setting(setting_description(member), value, fmt::format("{}: {}", option, what));
  };
  for (const Text bucket : items_of(text)) {
    const std::size_t first = bucket.find('x'), second = bucket.find('x', first + 1);
    require(first != bucket.npos && second != bucket.npos &&
                bucket.find('x', second + 1) == bucket.npos,
            Status::usage, "{}: found '{}', expected FRAMESxHEIGHTxWIDTH, such as 49x480x720",
            option, bucket);
    VideoSize size;
    size.frames = number(&ClipSettings::frames, bucket.substr(0, first), "frames");
    size.height =
        number(&ClipSettings::height, bucket.substr(first + 1, second - first - 1), "height");
    size.width = number(&ClipSettings::width, bucket.substr(second + 1), "width");
    require(std::ranges::find(found, size) == found.end(), Status::usage,
            "{}: found {} twice in '{}', expected each size once", option, bucket, text);
    found.push_back(size);
  }
}

// A list without repetitions.
void set_targets(Draft& draft, Text text, Where option) {
  std::vector<std::string>& found = train_of(draft).lora.targets;
  found.clear();
  for (const Text item : items_of(text)) {
    found.emplace_back(targets[parse_choice(item, option, targets)]);
    require(std::ranges::count(found, found.back()) == 1, Status::usage,
            "{}: found {} twice in '{}', expected each layer once", option, found.back(), text);
  }
}

// A list of KEY=N without repetitions of a key. parse: of N.
template <class T>
LoraPatterns<T> parse_patterns(Text text, Where option, const std::function<T(Text)>& parse) {
  const auto is_in_names = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  };
  LoraPatterns<T> found;
  for (const Text item : items_of(text)) {
    const Text key = item.substr(0, item.find('='));
    require(key.size() < item.size() && !key.empty() && std::ranges::all_of(key, is_in_names),
            Status::usage,
            "{}: found '{}', expected KEY=N, where KEY is the name of a layer, or its end after a "
            "dot, and no regular expression",
            option, item);
    const bool repeated = std::ranges::any_of(
        found, [&](const LoraPattern<T>& pattern) { return pattern.key == key; });
    require(!repeated, Status::usage, "{}: found {} twice in '{}', expected each key once", option,
            key, text);
    found.push_back({std::string(key), parse(item.substr(key.size() + 1))});
  }
  return found;
}

constexpr std::array<Text, 4> frames_from{"start", "middle", "random", "all"};
constexpr std::array<Text, 2> crops{"center", "random"};
constexpr std::array<Text, 2> no_captions{"skip", "empty"};
constexpr Text own_rate = "own";

// "PATH" or "PATH:REPEAT": what follows the last colon is a number, unless there is such a file.
template <std::vector<DataPath> DataSettings::*member>
void add_data_path(Draft& draft, Text text, Where option) {
  constexpr double min_repeat = 0.001, max_repeat = 10'000;
  DataPath data;
  Text path = text;
  const std::size_t colon = text.rfind(':');
  std::error_code unreadable;
  if (colon != text.npos && read_number<double>(text.substr(colon + 1)) &&
      !std::filesystem::exists(text, unreadable)) {
    data.repeat = parse_number(text.substr(colon + 1), option, min_repeat, max_repeat);
    path = text.substr(0, colon);
  }
  data.path = draft.path(PathUse::input, path, option);
  (train_of(draft).data.*member).push_back(data);
}

void set_fps(Draft& draft, Text text, Where option) {
  DataSettings& data = train_of(draft).data;
  data.own_fps = text == own_rate;
  data.fps.reset();
  if (!data.own_fps) {
    data.fps = parse_setting(setting_description(&ClipSettings::fps), text, option);
  }
}

std::vector<Option> data_options() {
  static const std::string fps_help = fmt::format(
      "frames per second, {}: frames of a video are chosen to have this rate, by their times; or "
      "own, each video's [default: the model's]",
      setting_limits(setting_description(&ClipSettings::fps)));
  return {
      {"data.path", "PATH[:REPEAT]",
       "the clips to learn from (required): a .jsonl or .csv file with the fields video (or "
       "file_name), relative to the folder of the file, and prompt (or text); or a folder with "
       "metadata.csv, metadata.jsonl, prompts.txt and videos.txt, or a .txt file beside each "
       "video. "
       "An epoch has each clip REPEAT times, 0.001 to 10000; with 0.5 only every second clip is "
       "used. Repeat the option for more clips",
       nullptr, Effect::clips, add_data_path<&DataSettings::paths>, true},
      {"data.validation", "PATH[:REPEAT]",
       "clips for train.validate-every that are not learned from, as data.path [default: the first "
       "four of data.path, which are]",
       nullptr, Effect::no_bits, add_data_path<&DataSettings::validation>, true},
      format_option<&DataSettings::height, &ClipSettings::height>(
          "data.height", "PIXELS", "size of clips, {limits} [default: the checkpoint's]"),
      format_option<&DataSettings::width, &ClipSettings::width>(
          "data.width", "PIXELS", "size of clips, {limits} [default: the checkpoint's]"),
      format_option<&DataSettings::frames, &ClipSettings::frames>(
          "data.frames", "N", "frames of a clip, {limits} [default: the checkpoint's]"),
      changes_bits<&DataSettings::buckets>(
          "data.buckets", "FxHxW,...",
          "sizes of clips (frames, height, width), such as 49x480x720,49x720x480,25x480x720: of "
          "those for which its video has enough frames, each clip has the one with the most "
          "frames and the nearest ratio of height to width; the clips of a step are of one size "
          "[default: one size, that of data.height, data.width and data.frames]",
          nullptr, set_buckets),
      changes_bits<&DataSettings::fps>("data.fps", "N|own", fps_help.c_str(), nullptr, set_fps,
                                       [](const Job& job, const Computation& by) {
                                         return job.train->data.own_fps
                                                    ? std::string(own_rate)
                                                    : value_of<&DataSettings::fps>(job, by);
                                       }),
      changes_bits<&DataSettings::frames_from>(
          "data.frames-from", "start|middle|random|all",
          "which frames of a video are a clip: the first ones, those in the middle, some that "
          "follow each other, drawn once, or all, as several clips",
          "start", set_choice<&DataSettings::frames_from, frames_from>,
          changed_choice<&DataSettings::frames_from, frames_from>),
      changes_bits<&DataSettings::crop>(
          "data.crop", "center|random",
          "which part of a frame is a clip's, where it is higher or wider; drawn once", "center",
          set_choice<&DataSettings::crop, crops>, changed_choice<&DataSettings::crop, crops>),
      changes_bits<&DataSettings::flip>(
          "data.flip", "N",
          "probability that a clip is mirrored, left to right, 0 to 1; drawn once", "0",
          set_probability<&DataSettings::flip>, changed_value<&DataSettings::flip>),
      changes_bits<&DataSettings::shuffle>("data.shuffle", "yes|no",
                                           "another order of the clips in each epoch", "yes",
                                           set_switch<&DataSettings::shuffle>),
      {"data.video-field", "NAME",
       "field or column of a list with the video [default: the first of video, file_name, path, "
       "file_path, video_path, media_path that is there]",
       nullptr, Effect::clips, set_name<&DataSettings::video_field>},
      {"data.caption-field", "NAME",
       "field or column of a list with the caption [default: the first of prompt, text, caption, "
       "cap that is there]",
       nullptr, Effect::clips, set_name<&DataSettings::caption_field>},
      {"data.caption-prefix", "TEXT",
       "words that all captions begin with, such as a trigger word, before a space", nullptr,
       Effect::clips, set_name<&DataSettings::caption_prefix>},
      {"data.no-caption", "skip|empty",
       "clips without a caption are left out, or have an empty one", "skip", Effect::clips,
       set_choice<&DataSettings::no_caption, no_captions>},
      {"data.subfolders", "yes|no",
       "a folder with a .txt file beside each video includes the folders below it", "no",
       Effect::clips, set_switch<&DataSettings::subfolders>},
      {"data.strict", "yes|no",
       "end at the first clip that cannot be used; otherwise such clips are left out", "no",
       Effect::no_bits, set_switch<&DataSettings::strict>},
      {"data.cache", "DIR",
       "folder of encoded clips, which several jobs may use [default: cache/ in output.path]",
       nullptr, Effect::no_bits, set_path<&DataSettings::cache, PathUse::cache>}};
}

void set_keep(Draft& draft, Text text, Where option) {
  using What = KeepRule::What;
  KeepRule& keep = train_of(draft).keep;
  keep = {};
  if (text == "none") return;
  keep.what = text == "all" ? What::all : text == "best" ? What::best : What::last;
  if (keep.what == What::last) keep.count = parse_integer(text, option, 1, max_steps);
}

std::vector<Option> train_options() {
  using T = TrainSettings;
  using O = ops::OptimizerSettings;
  static const std::string method_help = [] {
    std::string text = "what is trained";
    for (const TrainMethod& method : train_methods()) {
      text += fmt::format("{} {}, {}", text.back() == 'd' ? ":" : ";", method.name, method.trains);
    }
    return text;
  }();
  return {
      changes_bits<&T::method>(
          "train.method", "lora|full", method_help.c_str(), "lora",
          [](Draft& d, Text text, Where option) {
            train_of(d).method = &parse_row(train_methods(), text, option);
          },
          [](const Job& job, const Computation&) { return std::string(job.train->method->name); }),
      of_rate(changes_bits<&T::steps>(
          "train.steps", "N", "steps of the training, 1 to 100000000 (required)", nullptr,
          set_integer<&T::steps, 1, max_steps>,
          [](const Job& job, const Computation& by) {  // at a constant rate, more may follow later
            return job.train->schedule->knows_the_end ? value_of<&T::steps>(job, by)
                                                      : std::string();
          })),
      changes_bits<&T::batch>("train.batch", "N",
                              "clips of a step, of all ranks together, 1 to 65536", "1",
                              set_integer<&T::batch, 1, 65536>),
      changes_bits<&T::seed>(
          "train.seed", "N",
          "seed of timesteps, noise and the order of clips; sample n of the job uses seed + n",
          "42", set_as_of_clip<&T::seed, &ClipSettings::seed>),
      of_rate(changes_bits<&T::learning_rate>("train.learning-rate", "N", "0 to 100", "1e-4",
                                              [](Draft& d, Text text, Where option) {
                                                train_of(d).learning_rate =
                                                    parse_number(text, option, 0, 100);
                                              })),
      of_rate(changes_bits<&T::schedule>(
          "train.schedule", "constant|linear|cosine|cosine_with_restarts|polynomial",
          "of the learning rate after the warm-up: constant; or to train.min-rate at train.steps, "
          "as those of diffusers",
          "constant",
          [](Draft& d, Text text, Where option) {
            train_of(d).schedule = &parse_row(ops::rate_schedules(), text, option);
          },
          [](const Job& job, const Computation&) {
            return std::string(job.train->schedule->name);
          })),
      of_rate(changes_bits<&T::warmup>(
          "train.warmup", "N", "steps in which the learning rate rises linearly, 0 to 100000000",
          "0", set_integer<&T::warmup, 0, max_steps>)),
      of_rate(changes_bits<&T::min_rate>(
          "train.min-rate", "N", "to which the schedule falls, 0 to train.learning-rate", "0",
          [](Draft& d, Text text, Where option) {
            train_of(d).min_rate = parse_number(text, option, 0, 100);
          },
          changed_value<&T::min_rate>)),
      of_rate(changes_bits<&ops::RateShape::cycles>(
          "train.cycles", "N", "how often cosine_with_restarts falls, 1 to 1000000", "1",
          set_integer<&ops::RateShape::cycles, 1, 1'000'000>,
          [](const Job& job, const Computation& by) {
            const bool counts = job.train->schedule->uses_cycles;
            return counts ? value_of<&ops::RateShape::cycles>(job, by) : std::string();
          })),
      of_rate(changes_bits<&ops::RateShape::power>(
          "train.power", "N", "of polynomial, 0.01 to 100; 1: linear", "1",
          [](Draft& d, Text text, Where option) {
            train_of(d).rate_shape.power = parse_number(text, option, 0.01, 100);
          },
          [](const Job& job, const Computation& by) {
            const bool counts = job.train->schedule->uses_power;
            return counts ? value_of<&ops::RateShape::power>(job, by) : std::string();
          })),
      {"train.new-rate", "yes|no",
       "a training that goes on (output.if-exists = resume) may have other options of the learning "
       "rate, and other train.steps, than before",
       "no", Effect::no_bits, set_switch<&T::new_rate>},
      changes_bits<&T::optimizer>(
          "train.optimizer", "adamw|lion|sgd",
          "adamw, lion or sgd; Lion keeps one moment instead of two, and needs a third to a tenth "
          "of AdamW's learning rate",
          "adamw",
          [](Draft& d, Text text, Where option) {
            train_of(d).optimizer = &parse_row(ops::optimizers(), text, option);
          },
          [](const Job& job, const Computation&) {
            return std::string(job.train->optimizer->name);
          }),
      changes_bits<&O::beta1>("train.beta1", "N",
                              "AdamW: decay of the running mean of gradients; Lion: weight of that "
                              "mean in the direction of a step; 0 to 0.999999",
                              "0.9", set_decay<&O::beta1>, value_for_optimizer<&O::beta1>),
      changes_bits<&O::beta2>("train.beta2", "N",
                              "AdamW: decay of the running mean of squared gradients; Lion: decay "
                              "of the running mean of gradients; 0 to 0.999999",
                              "0.95", set_decay<&O::beta2>, value_for_optimizer<&O::beta2>),
      changes_bits<&O::weight_decay>(
          "train.weight-decay", "N", "AdamW, Lion: times the learning rate, 0 to 100", "1e-4",
          [](Draft& d, Text text, Where option) {
            setting(train_of(d), &O::weight_decay) = parse_number(text, option, 0, 100);
          },
          value_for_optimizer<&O::weight_decay>),
      changes_bits<&O::epsilon>(
          "train.epsilon", "N", "AdamW: is added to the root of the mean square, 1e-30 to 1",
          "1e-8",
          [](Draft& d, Text text, Where option) {
            setting(train_of(d), &O::epsilon) = parse_number(text, option, 1e-30, 1);
          },
          value_for_optimizer<&O::epsilon>),
      changes_bits<&O::momentum>("train.momentum", "N",
                                 "SGD: decay of the sum of gradients, 0 to 0.999999", "0",
                                 set_decay<&O::momentum>, value_for_optimizer<&O::momentum>),
      changes_bits<&T::clip>("train.clip", "N|none",
                             "largest norm of the gradient of all parameters, 1e-6 to 1e6; longer "
                             "ones are scaled down to it",
                             "1.0", set_clip,
                             [](const Job& job, const Computation&) {
                               const auto& clip = job.train->clip;
                               return clip ? text_of(clip) : std::string("none");
                             }),
      changes_bits<&T::ema>(
          "train.ema", "N|off",
          "decay of a running mean of what is trained, over the steps, which is then what is "
          "written; 0 to 0.999999, or off",
          "off",
          [](Draft& d, Text text, Where option) {
            std::optional<double>& ema = train_of(d).ema;
            ema.reset();
            if (text != "off") ema = parse_number(text, option, 0, max_decay);
          }),
      changes_bits<&T::caption_dropout>(
          "train.caption-dropout", "N",
          "probability that a sample has the empty caption instead of its own, 0 to 1", "0",
          set_probability<&T::caption_dropout>),
      changes_bits<&T::image_dropout>(
          "train.image-dropout", "N",
          "probability that a sample is trained without its image, 0 to 1; only of CogVideoX "
          "models "
          "that make videos from images",
          "0.05", set_probability<&T::image_dropout>,
          [](const Job& job, const Computation& by) {  // the only one of other models
            const bool is_default = job.train->image_dropout == default_image_dropout;
            return is_default ? std::string() : value_of<&T::image_dropout>(job, by);
          }),
      format_option<&T::flow_shift, &ClipSettings::flow_shift>(
          "train.flow-shift", "SHIFT",
          "Wan: moves the noise levels that are drawn towards the noise, {limits}; larger videos "
          "need more [default: the checkpoint's]"),
      changes_bits<&T::timesteps>(
          "train.timesteps", "uniform|logit-normal",
          "how timesteps are drawn, of flows (Wan, Open-Sora 1.2): uniformly, or as the sigmoid of "
          "a normal number, which prefers the middle [default: the model's, of Wan uniform, of "
          "Open-Sora 1.2 logit-normal]",
          nullptr,
          [](Draft& d, Text text, Where option) {
            train_of(d).timesteps =
                static_cast<TimestepDraw>(parse_choice(text, option, timestep_draw_names));
          },
          [](const Job& job, const Computation&) {
            const auto& draw = job.train->timesteps;
            return draw ? std::string(timestep_draw_names[static_cast<std::size_t>(*draw)])
                        : std::string();
          }),
      changes_bits<&T::logit_mean>(
          "train.logit-mean", "N",
          "mean of the normal number of logit-normal, -10 to 10: less prefers little noise "
          "(Wan: much) [default: 0]",
          nullptr,
          [](Draft& d, Text text, Where option) {
            train_of(d).logit_mean = parse_number(text, option, -10, 10);
          }),
      changes_bits<&T::logit_std>("train.logit-std", "N",
                                  "its standard deviation, 0.01 to 10 [default: 1]", nullptr,
                                  [](Draft& d, Text text, Where option) {
                                    train_of(d).logit_std = parse_number(text, option, 0.01, 10);
                                  }),
      changes_bits<&T::min_snr>(
          "train.min-snr", "N|off",
          "CogVideoX, Open-Sora 1.0: the largest signal-to-noise ratio with which the loss of a "
          "timestep counts (min-SNR, whose paper takes 5), 0.01 to 1000, or off",
          "off",
          [](Draft& d, Text text, Where option) {
            std::optional<double>& gamma = train_of(d).min_snr;
            gamma.reset();
            if (text != "off") gamma = parse_number(text, option, 0.01, 1000);
          }),
      changes_bits<&T::samples_posterior>(
          "train.posterior", "sample|mode",
          "latents of a clip are drawn from the distribution that the VAE gives, or are its mode",
          "sample",
          [](Draft& d, Text text, Where option) {
            train_of(d).samples_posterior = parse_choice(text, option, posteriors) == 0;
          },
          [](const Job& job, const Computation&) {
            return std::string(posteriors[job.train->samples_posterior ? 0 : 1]);
          }),
      {"train.recompute", "auto|yes|no",
       "blocks of the transformer keep only their inputs and are computed again for gradients "
       "(gradient checkpointing), or keep all that gradients need: more memory, a quarter less "
       "time; auto: kept if that leaves a tenth of the memory free",
       "auto", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         std::optional<bool>& recomputes = train_of(d).recomputes_blocks;
         recomputes.reset();
         if (text != "auto") recomputes = parse_choice(text, option, recomputing) == 1;
       }},
      {"train.save-every", "N",
       "steps after which what is trained and the state of the training are saved, 0 to 100000000; "
       "0: as "
       "restart.every says",
       "0", Effect::no_bits, set_integer<&T::save_every, 0, max_steps>},
      {"train.keep", "none|all|N|best",
       "which results are kept in kept/step-NNNNNN in output.path beside the last one: those after "
       "each train.save-every steps, the last N of them, or the one with the least validation loss",
       "none", Effect::no_bits, set_keep},
      {"train.validate-every", "N",
       "steps after which, and before the first and after the last, the loss of fixed clips, "
       "timesteps and noise is computed without learning from it, 0 to 100000000; 0: never",
       "0", Effect::no_bits, set_integer<&T::validate_every, 0, max_steps>},
      {"train.sample-every", "N|off",
       "steps after which, and before the first and after the last, clips are made with what is "
       "trained, as run makes them, and written to samples/ in output.path; 1 to 100000000",
       "off", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         train_of(d).sample_every = text == "off" ? 0 : parse_integer(text, option, 1, max_steps);
       }},
      {"train.sample-prompts", "FILE",
       "prompts of these clips, as prompt.file of run: .txt, .jsonl or .json. Clip i has the seed "
       "train.seed + i unless its line says otherwise [default: the first two captions of "
       "data.path]",
       nullptr, Effect::no_bits, set_path<&T::sample_prompts, PathUse::input>},
      clip_option<&T::sample_steps, &ClipSettings::steps>(
          "train.sample-steps", "sampler steps of these clips, {limits} [default: as of run]"),
      clip_option<&T::sample_guidance, &ClipSettings::guidance>(
          "train.sample-guidance", "guidance scale of these clips, {limits} [default: as of run]"),
      changes_bits<&T::reproducible>(
          "train.reproducible", "yes|no",
          "gradients are added in the order of the clips, with the same bits on any number of "
          "replicas; otherwise each replica adds those of its own clips first, which takes one "
          "exchange for a step instead of one for each of its clips",
          "yes", set_switch<&T::reproducible>)};
}

std::vector<Option> lora_options() {
  using L = LoraSettings;
  static const std::string rank_help = fmt::format("of the changes, 1 to {}", max_lora_rank);
  static const std::string alpha_help =
      fmt::format("the changes are multiplied by alpha / rank; 1e-6 to {} [default: lora.rank]",
                  max_lora_alpha);
  static const std::string rank_pattern_help = fmt::format(
      "other ranks of some layers, as rank_pattern of PEFT: a list of KEY=N; N is 1 to {}, KEY a "
      "layer's name (transformer_blocks.0.attn1.to_q) or its end after a dot (to_q), and no "
      "regular expression. The first key that fits a layer counts",
      max_lora_rank);
  static const std::string alpha_pattern_help = fmt::format(
      "other values of alpha, likewise, 1e-6 to {}. Other layers have lora.alpha, also those with "
      "a rank of their own",
      max_lora_alpha);
  static const std::string targets_help = fmt::format(
      "linear layers of each block that are changed, a list of {}", fmt::join(targets, ", "));
  return {
      changes_bits<&L::rank>("lora.rank", "N", rank_help.c_str(), "64",
                             set_integer<&L::rank, 1, max_lora_rank>, value_for_lora<&L::rank>),
      changes_bits<&L::alpha>(
          "lora.alpha", "N", alpha_help.c_str(), nullptr,
          [](Draft& d, Text text, Where option) {
            train_of(d).lora.alpha = parse_number(text, option, 1e-6, max_lora_alpha);
          },
          [](const Job& job, const Computation&) {
            const std::optional<LoraShape> lora = lora_shape(*job.train);
            return lora ? text_of(lora->alpha) : std::string();
          }),
      changes_bits<&L::folds_alpha>(
          "lora.fold-alpha", "yes|no",
          "what is written has B times alpha / rank, and alpha = rank, "
          "for programs that do not read "
          "alpha from a file's metadata, such as diffusers before 0.35",
          "no", set_switch<&L::folds_alpha>,
          [](const Job& job, const Computation&) {
            return std::string(trains_lora(job) && job.train->lora.folds_alpha ? "yes" : "");
          }),
      changes_bits<&L::rank_pattern>(
          "lora.rank-pattern", "LIST", rank_pattern_help.c_str(), nullptr,
          [](Draft& d, Text text, Where option) {
            train_of(d).lora.rank_pattern = parse_patterns<std::int64_t>(
                text, option,
                [&](Text number) { return parse_integer(number, option, 1, max_lora_rank); });
          },
          value_for_lora<&L::rank_pattern>),
      changes_bits<&L::alpha_pattern>(
          "lora.alpha-pattern", "LIST", alpha_pattern_help.c_str(), nullptr,
          [](Draft& d, Text text, Where option) {
            train_of(d).lora.alpha_pattern = parse_patterns<double>(text, option, [&](Text number) {
              return parse_number(number, option, 1e-6, max_lora_alpha);
            });
          },
          value_for_lora<&L::alpha_pattern>),
      changes_bits<&L::dropout>(
          "lora.dropout", "N",
          "probability that an element of a layer's input is left out of the changes, in steps of "
          "the training, 0 to 0.99, as lora_dropout of PEFT",
          "0",
          [](Draft& d, Text text, Where option) {
            train_of(d).lora.dropout = parse_number(text, option, 0, max_lora_dropout);
          },
          [](const Job& job, const Computation& by) {
            return trains_lora(job) ? changed_value<&L::dropout>(job, by) : std::string();
          }),
      changes_bits<&L::targets>("lora.targets", "LIST", targets_help.c_str(),
                                "to_q,to_k,to_v,to_out.0", set_targets,
                                [](const Job& job, const Computation&) {
                                  if (!trains_lora(job)) return std::string();
                                  return fmt::format("{}", fmt::join(job.train->lora.targets, "+"));
                                }),
      changes_bits<&L::init>(
          "lora.init", "FILE",
          "a LoRA of the same ranks and targets to go on from; otherwise A is random and B zero",
          nullptr,
          [](Draft& d, Text text, Where option) {
            train_of(d).lora.init =
                text.empty() ? std::filesystem::path() : d.path(PathUse::input, text, option);
          },
          [](const Job& job, const Computation&) { return job.train->lora.init.string(); })};
}

}  // namespace

DividedFingerprint divided_by_rate(std::string_view fingerprint) {
  constexpr Text separator = ", ";
  DividedFingerprint divided;
  for (std::size_t begin = 0; begin <= fingerprint.size();) {
    const std::size_t end = std::min(fingerprint.find(separator, begin), fingerprint.size());
    const Text item = fingerprint.substr(begin, end - begin);
    const Text name = item.substr(0, item.find(' '));
    const bool of_rate = std::ranges::any_of(
        options(), [&](const Option& option) { return option.of_rate && option.name == name; });
    std::string& to = of_rate ? divided.rate : divided.rest;
    if (!to.empty()) to += separator;
    to += item;
    begin = end + separator.size();
  }
  return divided;
}

std::vector<Option> training_options() {
  std::vector<Option> all = data_options();
  for (const auto& section : {train_options(), lora_options()}) {
    all.insert(all.end(), section.begin(), section.end());
  }
  return all;
}

}  // namespace reelmesh
