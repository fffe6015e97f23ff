#include "store/trace_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace reelmesh {
namespace {

struct Column {
  hdf5::Field field;
  const char* long_name;
  const char* unit;  ///< "" for texts and identifiers
};

Table table(const char* name, const char* long_name, std::size_t row_bytes,
            const std::vector<Column>& columns) {
  Table made{name, long_name, row_bytes, {}, {}, {}};
  std::vector<hdf5::Field> fields;
  for (const Column& column : columns) {
    fields.push_back(column.field);
    made.long_names.emplace_back(column.long_name);
    made.units.emplace_back(column.unit);
  }
  made.type = hdf5::compound(row_bytes, fields);
  return made;
}

// Where tensors are: rows and counters of the first come first.
constexpr std::array<const char*, 2> memory_kinds{"host", "device"};

// Types of members. Constants of other sources, also that of hdf5.cpp, may be set later than these.
const hid_t i4 = (hdf5::initialize(), H5T_NATIVE_INT32), i8 = H5T_NATIVE_INT64,
            f8 = H5T_NATIVE_DOUBLE;

hdf5::Datatype direction_type() { return hdf5::enumeration({{"SEND", 0}, {"RECEIVE", 1}}); }

// "HOST_WEIGHTS" and so on for each purpose, then those of the device, then the others.
hdf5::Datatype counter_type() {
  std::vector<std::pair<std::string, int>> counters;
  const auto add = [&](std::string name) {
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    counters.emplace_back(std::move(name), static_cast<int>(counters.size()));
  };
  for (const char* memory : memory_kinds) {
    for (const char* purpose : purpose_names) add(fmt::format("{}_{}", memory, purpose));
  }
  add("bytes_sent");
  add("clips_waiting");
  return hdf5::enumeration(counters);
}

}  // namespace

#define REELMESH_NUMBER(Row, member, type) \
  { #member, offsetof(Row, member), type }
#define REELMESH_TEXT(Row, member) \
  { #member, offsetof(Row, member), hdf5::no_id, sizeof Row::member }

Table span_table() {
  using Row = SpanRow;
  return table(
      "spans", "what each rank did and when", sizeof(Row),
      {{REELMESH_NUMBER(Row, rank, i4), "rank, a row of /ranks", ""},
       {REELMESH_TEXT(Row, lane), "what the rank is busy with: compute, exchange or file", ""},
       {REELMESH_TEXT(Row, name), "name of the stage, layer or operation", ""},
       {REELMESH_NUMBER(Row, clip, i4), "number of the clip, -1: none", ""},
       {REELMESH_NUMBER(Row, step, i4), "sampler step, -1: none", ""},
       {REELMESH_NUMBER(Row, layer, i4), "layer, -1: none", ""},
       {REELMESH_NUMBER(Row, start_ns, i8), "start", "ns"},
       {REELMESH_NUMBER(Row, duration_ns, i8), "duration", "ns"},
       {REELMESH_NUMBER(Row, bytes, i8), "sent to other ranks within the span", "byte"},
       {REELMESH_NUMBER(Row, flops, i8), "floating-point operations within the span", "FLOP"},
       {REELMESH_NUMBER(Row, memory_bytes, i8),
        "read and written in memory by the operations within the span at least, 0: not counted",
        "byte"}});
}

Table message_table() {
  using Row = MessageRow;
  const hdf5::Datatype direction = direction_type();
  return table(
      "messages", "what ranks have sent to each other", sizeof(Row),
      {{REELMESH_NUMBER(Row, rank, i4), "rank that recorded the message", ""},
       {REELMESH_NUMBER(Row, peer, i4), "rank that it was sent to or received from", ""},
       {REELMESH_NUMBER(Row, direction, direction.get()), "whether rank sent or received it", ""},
       {REELMESH_NUMBER(Row, clip, i4), "number of the clip, -1: none", ""},
       {REELMESH_NUMBER(Row, step, i4), "sampler step, -1: none", ""},
       {REELMESH_NUMBER(Row, layer, i4), "layer, -1: none", ""},
       {REELMESH_NUMBER(Row, start_ns, i8), "when the rank began it", "ns"},
       {REELMESH_NUMBER(Row, duration_ns, i8), "until the rank knew it to be complete", "ns"},
       {REELMESH_NUMBER(Row, bytes, i8), "size", "byte"},
       {REELMESH_NUMBER(Row, channel, i8), "communicator, the same number on all its ranks", ""},
       {REELMESH_NUMBER(Row, number, i8),
        "place among the messages from sender to receiver on the channel", ""}});
}

Table counter_table() {
  using Row = CounterRow;
  const hdf5::Datatype counter = counter_type();
  return table("counters", "memory, bytes sent and queues over time", sizeof(Row),
               {{REELMESH_NUMBER(Row, rank, i4), "rank, a row of /ranks", ""},
                {REELMESH_NUMBER(Row, counter, counter.get()),
                 "memory of tensors by place and purpose, bytes sent, or clips waiting", ""},
                {REELMESH_NUMBER(Row, time_ns, i8), "time", "ns"},
                {REELMESH_NUMBER(Row, value, i8), "value at this time", "byte or clip"},
                {REELMESH_NUMBER(Row, max, i8),
                 "largest value since the previous row of this rank and counter", "byte or clip"}});
}

Table rank_table() {
  using Row = RankRow;
  return table(
      "ranks", "the ranks of the job", sizeof(Row),
      {{REELMESH_NUMBER(Row, rank, i4), "rank", ""},
       {REELMESH_TEXT(Row, host), "name of its host", ""},
       {REELMESH_TEXT(Row, role), "stages that it takes part in", ""},
       {REELMESH_TEXT(Row, device), "cpu, or name of its GPU", ""},
       {REELMESH_NUMBER(Row, threads, i4), "threads", "1"},
       {REELMESH_NUMBER(Row, peak_memory_bytes, i8), "peak memory of the process", "byte"},
       {REELMESH_NUMBER(Row, peak_device_memory_bytes, i8), "peak memory of tensors on the GPU",
        "byte"},
       {REELMESH_NUMBER(Row, clock_offset_ns, i8),
        "clock of rank 0 minus clock of this rank when the trace was written", "ns"},
       {REELMESH_NUMBER(Row, padded_products, i8),
        "matrix products on the GPU whose rows were padded", "1"},
       {REELMESH_TEXT(Row, kernels), "libraries that computed on the GPU", ""},
       {REELMESH_NUMBER(Row, clock_drift_ppb, i8), "change of the clock offset", "ns/s"},
       {REELMESH_NUMBER(Row, memory_limit_bytes, i8), "memory limit of the plan, 0: none", "byte"},
       {REELMESH_NUMBER(Row, predicted_memory_bytes, i8),
        "peak memory that the plan predicts, 0: unknown", "byte"},
       {REELMESH_NUMBER(Row, peak_flops_per_s, f8),
        "fastest matrix product at the start of the job, 0: not measured", "FLOP/s"},
       {REELMESH_NUMBER(Row, peak_memory_bytes_per_s, f8),
        "fastest copy in memory at the start of the job, read and written, 0: not measured",
        "byte/s"}});
}

Table memory_table() {
  using Row = MemoryRow;
  return table("memory", "peaks of the memory of tensors", sizeof(Row),
               {{REELMESH_NUMBER(Row, rank, i4), "rank, a row of /ranks", ""},
                {REELMESH_TEXT(Row, place), "host or device", ""},
                {REELMESH_TEXT(Row, purpose), "what the tensors are for", ""},
                {REELMESH_NUMBER(Row, peak_bytes, i8), "peak of this purpose", "byte"},
                {REELMESH_NUMBER(Row, bytes_at_peak, i8),
                 "when the tensors of all purposes together took most", "byte"}});
}

#undef REELMESH_NUMBER
#undef REELMESH_TEXT

hdf5::Dataset create_table(hid_t file, const Table& table, std::int64_t rows) {
  hdf5::Dataset dataset = hdf5::create_dataset(file, table.name, table.type.get(), {rows});
  hdf5::write_attribute(dataset.get(), "long_name", table.long_name);
  hdf5::describe_columns(dataset.get(), table.long_names, table.units);
  return dataset;
}

SpanRow to_span_row(const trace::Span& span, int rank) {
  SpanRow row{};
  row.rank = rank;
  hdf5::put(row.lane, span.lane);
  hdf5::put(row.name, span.name);
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
  hdf5::put(row.host, record.host);
  hdf5::put(row.role, record.role);
  hdf5::put(row.device, record.device);
  row.threads = record.threads;
  row.peak_memory_bytes = record.peak_memory_bytes;
  row.peak_device_memory_bytes = record.peak_device_memory_bytes;
  row.padded_products = record.padded_products;
  hdf5::put(row.kernels, record.kernels);
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
    hdf5::put(row.place, memory_kinds[kind]);
    hdf5::put(row.purpose, purpose_names[purpose]);
    row.peak_bytes = memory.peak[purpose];
    row.bytes_at_peak = memory.at_peak[purpose];
  }
  return rows;
}

}  // namespace reelmesh
