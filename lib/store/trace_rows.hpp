#pragma once
// The tables of trace.h5: their rows in memory, and what describes their columns.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "store/table.hpp"
#include "store/trace.hpp"

namespace reelmesh {

struct SpanRow {
  std::int32_t rank;
  std::int16_t name;  ///< number of trace::all_spans
  std::int8_t lane;   ///< number of trace::all_lanes
  char unused;
  std::int32_t clip, step, layer;
  char unused_too[4];
  std::int64_t start_ns, duration_ns, bytes, flops, memory_bytes;
};

struct MessageRow {
  std::int32_t rank, peer;
  std::int8_t direction;  ///< 0 SEND, 1 RECEIVE
  char unused[3];
  std::int32_t clip, step, layer;
  std::int64_t start_ns, duration_ns, bytes, channel, number;
};

struct CounterRow {
  std::int32_t rank;
  std::int8_t counter;  ///< TraceCounter
  char unused[3];
  std::int64_t time_ns, value, max;
};

struct RankRow {
  std::int32_t rank;
  char host[64];
  char role[32];
  char device[64];
  std::int32_t threads;
  std::int64_t peak_memory_bytes, peak_device_memory_bytes, clock_offset_ns, padded_products;
  char kernels[160];
  std::int64_t clock_drift_ppb, memory_limit_bytes, predicted_memory_bytes;
  double peak_flops_per_s, peak_memory_bytes_per_s;
};

struct MemoryRow {
  std::int32_t rank;
  std::int8_t place;    ///< 0 host, 1 device
  std::int8_t purpose;  ///< Purpose
  char unused[2];
  std::int64_t peak_bytes, bytes_at_peak;
};

// Without gaps, as rows are written to files and compared as bytes.
static_assert(sizeof(SpanRow) == 64 && sizeof(MessageRow) == 64 && sizeof(CounterRow) == 32);

/// Values of CounterRow::counter. The first are those of Purpose on the host, then on the device.
enum class TraceCounter : std::uint8_t {
  host_memory = 0,
  device_memory = purposes,
  bytes_sent = 2 * purposes,
  clips_waiting
};
inline constexpr std::size_t trace_counters = 2 * purposes + 2;

TableFormat span_table();
TableFormat message_table();
TableFormat counter_table();
TableFormat rank_table();
TableFormat memory_table();

/// Times are this rank's.
SpanRow to_span_row(const trace::Span& span, int rank);
/// peers: for each rank of MPI_COMM_WORLD its row in /ranks.
MessageRow to_message_row(const trace::Message& message, int rank, const std::vector<int>& peers);
/// Without the clock's columns.
RankRow to_rank_row(const RankRecord& record, int rank);
std::array<MemoryRow, 2 * purposes> memory_rows(const RankRecord& record, int rank);

}  // namespace reelmesh
