#include "store/trace_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string_view>

#include "base/span_list.hpp"

namespace reelmesh {
namespace {

// Where tensors are: rows and counters of the first come first.
constexpr std::array<const char*, 2> memory_kinds{"host", "device"};

// Types of members. Constants of other sources, also that of hdf5.cpp, may be set later than these.
const hid_t i1 = (hdf5::initialize(), H5T_NATIVE_INT8), i2 = H5T_NATIVE_INT16,
            i4 = H5T_NATIVE_INT32, i8 = H5T_NATIVE_INT64, f8 = H5T_NATIVE_DOUBLE;

template <class Names>
std::vector<std::string> as_texts(const Names& names) {
  return {names.begin(), names.end()};
}

std::vector<std::string> span_names() {
  std::vector<std::string> names;
  for (const trace::SpanKind& kind : trace::all_spans) names.emplace_back(kind.name);
  return names;
}

// "HOST_WEIGHTS" and so on for each purpose, then those of the device, then the others.
std::vector<std::string> counter_names() {
  std::vector<std::string> names;
  for (const char* memory : memory_kinds) {
    for (const char* purpose : purpose_names)
      names.push_back(fmt::format("{}_{}", memory, purpose));
  }
  names.insert(names.end(), {"bytes_sent", "clips_waiting"});
  for (std::string& name : names) {
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
  }
  return names;
}

// Each name with its place in the list.
template <class Number>
std::map<std::string, Number, std::less<>> numbers_of(const std::vector<std::string>& names) {
  std::map<std::string, Number, std::less<>> numbers;
  for (const std::string& name : names) numbers.emplace(name, static_cast<Number>(numbers.size()));
  return numbers;
}

template <class Number>
Number number_of(const std::map<std::string, Number, std::less<>>& numbers, std::string_view name) {
  const auto found = numbers.find(name);
  expect(found != numbers.end(), "base/span_names.hpp does not list {} of a span", name);
  return found->second;
}

}  // namespace

#define REELMESH_NUMBER(member, type, long_name, unit) \
  { #member, offsetof(Row, member), type, long_name, unit }
#define REELMESH_FLAGS(member, type, meanings, long_name) \
  { #member, offsetof(Row, member), type, long_name, "", 0, meanings }
#define REELMESH_TEXT(member, long_name) \
  { #member, offsetof(Row, member), hdf5::no_id, long_name, "", sizeof Row::member }

TableFormat span_table() {
  using Row = SpanRow;
  return {
      "spans",
      "span",
      "what each rank did and when",
      sizeof(Row),
      {REELMESH_NUMBER(rank, i4, "rank, a row of /ranks", ""),
       REELMESH_FLAGS(lane, i1, as_texts(trace::all_lanes), "what the rank is busy with"),
       REELMESH_FLAGS(name, i2, span_names(), "name of the stage, layer or operation"),
       REELMESH_NUMBER(clip, i4, "number of the clip, -1: none", ""),
       REELMESH_NUMBER(step, i4, "sampler step, -1: none", ""),
       REELMESH_NUMBER(layer, i4, "layer, -1: none", ""),
       REELMESH_NUMBER(start_ns, i8, "start", "ns"),
       REELMESH_NUMBER(duration_ns, i8, "duration", "ns"),
       REELMESH_NUMBER(bytes, i8, "sent to other ranks within the span", "byte"),
       REELMESH_NUMBER(flops, i8, "floating-point operations within the span", "FLOP"),
       REELMESH_NUMBER(
           memory_bytes, i8,
           "read and written in memory by the operations within the span at least, 0: not counted",
           "byte")}};
}

TableFormat message_table() {
  using Row = MessageRow;
  return {"messages",
          "message",
          "what ranks have sent to each other",
          sizeof(Row),
          {REELMESH_NUMBER(rank, i4, "rank that recorded the message", ""),
           REELMESH_NUMBER(peer, i4, "rank that it was sent to or received from", ""),
           REELMESH_FLAGS(direction, i1, (std::vector<std::string>{"SEND", "RECEIVE"}),
                          "whether rank sent or received it"),
           REELMESH_NUMBER(clip, i4, "number of the clip, -1: none", ""),
           REELMESH_NUMBER(step, i4, "sampler step, -1: none", ""),
           REELMESH_NUMBER(layer, i4, "layer, -1: none", ""),
           REELMESH_NUMBER(start_ns, i8, "when the rank began it", "ns"),
           REELMESH_NUMBER(duration_ns, i8, "until the rank knew it to be complete", "ns"),
           REELMESH_NUMBER(bytes, i8, "size", "byte"),
           REELMESH_NUMBER(channel, i8, "communicator, the same number on all its ranks", ""),
           REELMESH_NUMBER(number, i8,
                           "place among the messages from sender to receiver on the channel", "")}};
}

TableFormat counter_table() {
  using Row = CounterRow;
  return {"counters",
          "sample",
          "memory, bytes sent and queues over time",
          sizeof(Row),
          {REELMESH_NUMBER(rank, i4, "rank, a row of /ranks", ""),
           REELMESH_FLAGS(counter, i1, counter_names(),
                          "memory of tensors by place and purpose, bytes sent, or clips waiting"),
           REELMESH_NUMBER(time_ns, i8, "time", "ns"),
           REELMESH_NUMBER(value, i8, "value at this time", "byte or clip"),
           REELMESH_NUMBER(max, i8, "largest value since the previous row of this rank and counter",
                           "byte or clip")}};
}

TableFormat rank_table() {
  using Row = RankRow;
  return {
      "ranks",
      "rank",
      "the ranks of the job",
      sizeof(Row),
      {REELMESH_NUMBER(rank, i4, "rank", ""), REELMESH_TEXT(host, "name of its host"),
       REELMESH_TEXT(role, "stages that it takes part in"),
       REELMESH_TEXT(device, "cpu, or name of its GPU"),
       REELMESH_NUMBER(threads, i4, "threads", "1"),
       REELMESH_NUMBER(peak_memory_bytes, i8, "peak memory of the process", "byte"),
       REELMESH_NUMBER(peak_device_memory_bytes, i8, "peak memory of tensors on the GPU", "byte"),
       REELMESH_NUMBER(clock_offset_ns, i8,
                       "clock of rank 0 minus clock of this rank when the trace was written", "ns"),
       REELMESH_NUMBER(padded_products, i8, "matrix products on the GPU whose rows were padded",
                       "1"),
       REELMESH_TEXT(kernels, "libraries that computed on the GPU"),
       REELMESH_NUMBER(clock_drift_ppb, i8, "change of the clock offset", "ns/s"),
       REELMESH_NUMBER(memory_limit_bytes, i8, "memory limit of the plan, 0: none", "byte"),
       REELMESH_NUMBER(predicted_memory_bytes, i8, "peak memory that the plan predicts, 0: unknown",
                       "byte"),
       REELMESH_NUMBER(peak_flops_per_s, f8,
                       "fastest matrix product at the start of the job, 0: not measured", "FLOP/s"),
       REELMESH_NUMBER(
           peak_memory_bytes_per_s, f8,
           "fastest copy in memory at the start of the job, read and written, 0: not measured",
           "byte/s")}};
}

TableFormat memory_table() {
  using Row = MemoryRow;
  return {"memory",
          "row",
          "peaks of the memory of tensors",
          sizeof(Row),
          {REELMESH_NUMBER(rank, i4, "rank, a row of /ranks", ""),
           REELMESH_FLAGS(place, i1, as_texts(memory_kinds), "where the tensors are"),
           REELMESH_FLAGS(purpose, i1, as_texts(purpose_names), "what the tensors are for"),
           REELMESH_NUMBER(peak_bytes, i8, "peak of this purpose", "byte"),
           REELMESH_NUMBER(bytes_at_peak, i8, "when the tensors of all purposes together took most",
                           "byte")}};
}

#undef REELMESH_NUMBER
#undef REELMESH_FLAGS
#undef REELMESH_TEXT

SpanRow to_span_row(const trace::Span& span, int rank) {
  static const auto names = numbers_of<std::int16_t>(span_names());
  static const auto lanes = numbers_of<std::int8_t>(as_texts(trace::all_lanes));
  SpanRow row{};
  row.rank = rank;
  row.name = number_of(names, span.name);
  row.lane = number_of(lanes, span.lane);
  row.clip = span.clip;
  row.step = span.step;
  row.layer = span.layer;
  row.start_ns = span.start_ns;
  row.duration_ns = span.duration_ns;
  row.bytes = span.bytes;
  row.flops = span.flops;
  row.memory_bytes = span.memory_bytes;
  return row;
}

MessageRow to_message_row(const trace::Message& message, int rank, const std::vector<int>& peers) {
  MessageRow row{};
  row.rank = rank;
  row.peer = peers.at(static_cast<std::size_t>(message.peer));
  row.direction = message.sends ? 0 : 1;
  row.clip = message.clip;
  row.step = message.step;
  row.layer = message.layer;
  row.start_ns = message.start_ns;
  row.duration_ns = message.duration_ns;
  row.bytes = message.bytes;
  row.channel = message.channel;
  row.number = message.number;
  return row;
}

RankRow to_rank_row(const RankRecord& record, int rank) {
  RankRow row{};
  row.rank = rank;
  put(row.host, record.host);
  put(row.role, record.role);
  put(row.device, record.device);
  row.threads = record.threads;
  row.peak_memory_bytes = record.peak_memory_bytes;
  row.peak_device_memory_bytes = record.peak_device_memory_bytes;
  row.padded_products = record.padded_products;
  put(row.kernels, record.kernels);
  row.memory_limit_bytes = record.memory_limit_bytes;
  row.predicted_memory_bytes = record.predicted_memory_bytes;
  row.peak_flops_per_s = record.peak_flops_per_s;
  row.peak_memory_bytes_per_s = record.peak_memory_bytes_per_s;
  return row;
}

std::array<MemoryRow, 2 * purposes> memory_rows(const RankRecord& record, int rank) {
  std::array<MemoryRow, 2 * purposes> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t kind = i / purposes, purpose = i % purposes;
    const MemoryByPurpose& memory = kind == 0 ? record.host_memory : record.device_memory;
    MemoryRow& row = rows[i];
    row.rank = rank;
    row.place = static_cast<std::int8_t>(kind);
    row.purpose = static_cast<std::int8_t>(purpose);
    row.peak_bytes = memory.peak[purpose];
    row.bytes_at_peak = memory.at_peak[purpose];
  }
  return rows;
}

}  // namespace reelmesh
