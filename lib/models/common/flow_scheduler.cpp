#include "models/common/flow_scheduler.hpp"

#include <algorithm>
#include <string_view>

#include "sampler/sampler_rows.hpp"

namespace reelmesh {
namespace {

void only_false(const Config& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) only_supported(config, key, config.get_bool(key, false), false);
}

double read_shift(const Config& config, const char* key) {
  return config.get_double(key, 1.0, 1e-3, 1e3);
}

double read_unipc(const Config& config) {
  const auto text = [&](const char* key, const std::string& fallback, const std::string& value) {
    only_supported(config, key, config.get_string(key, fallback), value);
  };
  text("prediction_type", "epsilon", "flow_prediction");
  text("solver_type", "bh2", "bh2");
  text("final_sigmas_type", "zero", "zero");
  only_supported(config, "solver_order", config.get_int("solver_order", 2), std::int64_t{2});
  for (const char* key : {"predict_x0", "lower_order_final"}) {
    only_supported(config, key, config.get_bool(key, true), true);
  }
  only_supported(config, "use_flow_sigmas", config.get_bool("use_flow_sigmas", false), true);
  only_false(config, {"thresholding", "use_karras_sigmas", "use_exponential_sigmas",
                      "use_beta_sigmas", "use_dynamic_shifting"});
  require(config.get_ints("disable_corrector", {}).empty() && !config.has("solver_p"), Status::data,
          "{}: found disable_corrector or solver_p, expected a corrector in all steps and no other "
          "solver",
          config.file().string());
  return read_shift(config, "flow_shift");
}

double read_euler(const Config& config) {
  only_false(config, {"use_dynamic_shifting", "invert_sigmas", "stochastic_sampling",
                      "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas"});
  require(!config.has("shift_terminal"), Status::data,
          "{}: found shift_terminal, expected none (no value is supported)",
          config.file().string());
  return read_shift(config, "shift");
}

// How the file of each class of flow_samplers() is read, → the shift.
struct Reader {
  std::string_view option;
  double (*read)(const Config& config);
};
constexpr Reader readers[] = {{"unipc", read_unipc}, {"euler", read_euler}};

}  // namespace

FlowScheduler read_flow_scheduler(const Config& config, const NamedClass& named) {
  FlowScheduler scheduler;
  errors_begin_with(named.where,
                    [&] { scheduler.sampler = &sampler_of_class(flow_samplers(), named.name); });
  scheduler.settings.num_train_timesteps = config.get_int("num_train_timesteps", 1000, 1, 1000000);
  const Reader* reader = std::ranges::find(readers, scheduler.sampler->option, &Reader::option);
  expect(reader != std::end(readers), "no reader of the scheduler {}", named.name);
  scheduler.settings.shift = reader->read(config);
  return scheduler;
}

}  // namespace reelmesh
