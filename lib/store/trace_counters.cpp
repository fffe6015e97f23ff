#include "store/trace_counters.hpp"

#include <algorithm>

namespace reelmesh {

void CounterSampler::add(std::size_t counter, std::int64_t now_ns, std::int64_t value,
                         std::int64_t max) {
  const std::int64_t largest = std::max({value, max, last_[counter]});
  if (value == last_[counter] && largest == value) return;
  CounterRow row{};
  row.rank = rank_;
  row.counter = static_cast<std::int8_t>(counter);
  row.time_ns = now_ns;
  row.value = value;
  row.max = largest;
  rows.push_back(row);
  last_[counter] = value;
}

void CounterSampler::sample(std::int64_t now_ns) {
  for (const TraceCounter first : {TraceCounter::host_memory, TraceCounter::device_memory}) {
    const RecentMemory memory = take_recent_memory(first == TraceCounter::device_memory);
    for (std::size_t i = 0; i < purposes; ++i) {
      add(static_cast<std::size_t>(first) + i, now_ns, memory.present[i], memory.max[i]);
    }
  }
  const trace::Recorder& recorder = trace::recorder();
  const auto add_plain = [&](TraceCounter counter, std::int64_t value) {
    add(static_cast<std::size_t>(counter), now_ns, value, value);
  };
  add_plain(TraceCounter::bytes_sent, recorder.bytes_sent);
  add_plain(TraceCounter::clips_waiting, recorder.clips_waiting);
}

}  // namespace reelmesh
