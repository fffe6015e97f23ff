#include "comm/beat.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "base/stop.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"

namespace reelmesh::comm {

Beat own_beat() {
  const trace::Recorder& recorder = trace::recorder();
  Beat beat;
  beat.process = ::getpid();
  beat.stop_cause = stop::cause();
  beat.unsaved = stop::has_unsaved_work() ? 1 : 0;
  beat.clip = recorder.clip;
  beat.step = recorder.step;
  beat.layer = recorder.layer;
  beat.new_plans = stop::new_plans_requested();
  beat.waits = recorder.waits;
  beat.clip_steps = recorder.clip_steps;
  beat.memory = measured_memory.now();
  beat.stage = ShortText<24>(recorder.stage);
  beat.waiting = ShortText<24>(recorder.waiting);
  beat.host = ShortText<64>(host_name().c_str());
  return beat;
}

bool Beat::may_wait() const {
  const std::string now = stage.string();
  return !waiting.empty() || now == trace::spans::save.name || now == trace::spans::write.name;
}

std::string beat_text(const Beat& beat) {
  std::string text = beat.stage.empty() ? "no stage" : beat.stage.string();
  const auto add = [&](const char* what, int number) {
    if (number >= 0) text += fmt::format(", {} {}", what, number);
  };
  add("clip", beat.clip);
  add("step", beat.step);
  add("layer", beat.layer);
  if (!beat.waiting.empty()) text += ", waiting in " + beat.waiting.string();
  return text;
}

}  // namespace reelmesh::comm
