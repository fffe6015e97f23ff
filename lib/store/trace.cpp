#include "store/trace.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "comm/trace_channel.hpp"
#include "store/job_files.hpp"
#include "store/trace_counters.hpp"
#include "store/trace_file.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t millisecond = 1'000'000, second = 1'000'000'000;
constexpr std::int64_t sample_interval = millisecond;
// Rows are appended to the parts after this time, or when they take this many bytes.
constexpr std::int64_t part_interval = second;
constexpr std::size_t max_unwritten = 4 << 20;
// Pause before trace.h5 is made again, as a multiple of the time that making it took.
constexpr std::int64_t pause_factor = 50;

}  // namespace

class TraceWriter::State {
 public:
  State(const comm::Group& world, std::filesystem::path folder, std::string level,
        std::function<RankRecord()> rank);
  void span_ended(trace::Level level);
  void write_part();
  void finish();

 private:
  template <class F>
  void unless_stopped(F&& work);
  std::size_t bytes() const;
  bool file_due(std::int64_t now) const;
  RankPart rank_part() const;
  void append();
  void make_file();

  comm::Group world_;
  std::filesystem::path folder_;
  std::string level_;
  std::function<RankRecord()> rank_;
  std::vector<int> peers_;  // for each rank of MPI_COMM_WORLD its rank in world_
  TraceClock clock_;
  std::int64_t earliest_ = INT64_MAX;
  CounterSampler counters_;
  PartWriter parts_;
  std::string failure_;  // why recording has stopped; empty: it has not
  std::int64_t began_, last_part_, last_sample_, last_file_;
  std::int64_t file_time_ = 0;  // that making trace.h5 took
};

TraceWriter::State::State(const comm::Group& world, std::filesystem::path folder, std::string level,
                          std::function<RankRecord()> rank)
    : world_(world),
      folder_(std::move(folder)),
      level_(std::move(level)),
      rank_(std::move(rank)),
      counters_(world.rank()),
      began_(trace::now_ns()),
      last_part_(began_),
      last_sample_(began_),
      last_file_(began_) {
  peers_.resize(static_cast<std::size_t>(comm::Group::world().size()), -1);
  int index = 0;
  for (const int peer : comm::ranks_in(world.handle(), MPI_COMM_WORLD)) {
    peers_[static_cast<std::size_t>(peer)] = index++;
  }
  clock_.start_offset_ns = clock_.end_offset_ns = clock_offset_ns(world);
  clock_.start_ns = clock_.end_ns = trace::now_ns();
  if (world.rank() == 0) {
    unless_stopped([&] { std::filesystem::create_directories(parts_folder(folder_)); });
  }
  world.barrier();
  unless_stopped([&] {
    parts_ = PartWriter(folder_, world_.rank());
    append();
  });
  world.barrier();  // rank 0 finds the files of all ranks
}

// An error of `work` stops recording.
template <class F>
void TraceWriter::State::unless_stopped(F&& work) {
  if (!failure_.empty()) return;
  try {
    work();
  } catch (const std::exception& error) {
    failure_ = fmt::format("rank {}: {}", world_.rank(), error.what());
    trace::Recorder& recorder = trace::recorder();
    recorder.level = trace::Level::off;
    recorder.spans = {};
    recorder.messages = {};
    counters_.rows = {};
  }
}

std::size_t TraceWriter::State::bytes() const {
  const trace::Recorder& recorder = trace::recorder();
  return recorder.spans.size() * sizeof(SpanRow) + recorder.messages.size() * sizeof(MessageRow) +
         counters_.rows.size() * sizeof(CounterRow);
}

// At first trace.h5 is made every second, later every ten.
bool TraceWriter::State::file_due(std::int64_t now) const {
  const std::int64_t interval = std::clamp((now - began_) / 4, second, 10 * second);
  return world_.rank() == 0 && now - last_file_ >= std::max(interval, pause_factor * file_time_);
}

// All spans that begin before the end of the outermost stage have ended then, so that parts which
// are sorted by start follow each other in this order, too.
void TraceWriter::State::span_ended(trace::Level level) {
  if (!failure_.empty()) return;
  const std::int64_t now = trace::now_ns();
  if (now - last_sample_ >= sample_interval) {
    last_sample_ = now;
    counters_.sample(now);
  }
  const char* outer = trace::recorder().stage;
  if (level != trace::Level::stages || *outer != '\0') return;
  if (bytes() < max_unwritten && now - last_part_ < part_interval) return;
  last_part_ = now;
  unless_stopped([&] { append(); });
  if (file_due(now)) make_file();
  trace::record(trace::spans::write_trace, now);
}

void TraceWriter::State::write_part() {
  unless_stopped([&] { append(); });
  if (world_.rank() == 0) make_file();
}

RankPart TraceWriter::State::rank_part() const {
  const RankRecord record = rank_();
  RankPart part;
  part.clock = clock_;
  part.earliest_ns = earliest_;
  part.row = to_rank_row(record, world_.rank());
  part.memory = memory_rows(record, world_.rank());
  return part;
}

void TraceWriter::State::append() {
  trace::Recorder& recorder = trace::recorder();
  counters_.sample(trace::now_ns());
  std::vector<SpanRow> spans;
  for (const trace::Span& span : recorder.spans) spans.push_back(to_span_row(span, world_.rank()));
  // Spans were recorded when they ended. Of spans with equal starts, the longer (outer) comes
  // first.
  std::ranges::stable_sort(spans, [](const SpanRow& a, const SpanRow& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
  });
  std::vector<MessageRow> messages;
  for (const trace::Message& message : recorder.messages) {
    messages.push_back(to_message_row(message, world_.rank(), peers_));
    earliest_ = std::min(earliest_, message.start_ns);
  }
  if (!spans.empty()) earliest_ = std::min(earliest_, spans.front().start_ns);
  if (!counters_.rows.empty()) earliest_ = std::min(earliest_, counters_.rows.front().time_ns);
  parts_.append(PartTable::spans, spans.data(), spans.size() * sizeof(SpanRow));
  parts_.append(PartTable::messages, messages.data(), messages.size() * sizeof(MessageRow));
  parts_.append(PartTable::counters, counters_.rows.data(),
                counters_.rows.size() * sizeof(CounterRow));
  parts_.write(rank_part());
  recorder.spans.clear();
  recorder.messages.clear();
  counters_.rows.clear();
}

// If it cannot be made now, for instance because another rank's files are not visible on this host
// yet, then it is made later.
void TraceWriter::State::make_file() {
  const std::int64_t start = trace::now_ns();
  try {
    make_trace_file(folder_, world_.size(), level_);
  } catch (const Error& error) {
    log::debug("the trace so far is not written: {}", error.what());
  }
  last_file_ = trace::now_ns();
  file_time_ = last_file_ - start;
}

void TraceWriter::State::finish() {
  unless_stopped([&] { append(); });
  clock_.end_offset_ns = clock_offset_ns(world_);
  clock_.end_ns = trace::now_ns();
  std::string failure;
  for (const std::string& of_rank : world_.all_gather(failure_)) {
    if (failure.empty()) failure = of_rank;
  }
  if (failure.empty()) {
    try {
      write_trace_file(world_, folder_, level_, rank_part());
    } catch (const Error& error) {
      if (error.status() != Status::io && error.status() != Status::cannot_create) throw;
      failure = error.what();
    }
  }
  if (!failure.empty()) log::warning("the trace is not complete: {}", failure);
  if (world_.rank() == 0) {
    try {
      remove_job_files(folder_, {JobFile::trace_part});
    } catch (const std::filesystem::filesystem_error& error) {
      log::warning("files of the trace are left: {}", error.what());
    }
  }
  world_.barrier();
}

TraceWriter::TraceWriter(const comm::Group& world, const std::filesystem::path& folder,
                         std::string level, std::function<RankRecord()> rank)
    : state_(std::make_unique<State>(world, folder, std::move(level), std::move(rank))) {
  trace::recorder().span_ended = [state = state_.get()](trace::Level ended) {
    state->span_ended(ended);
  };
}

TraceWriter::~TraceWriter() { trace::recorder().span_ended = nullptr; }

void TraceWriter::write_if_due() { state_->span_ended(trace::Level::stages); }

void TraceWriter::write_part() { state_->write_part(); }

void TraceWriter::finish_together() {
  trace::recorder().span_ended = nullptr;
  state_->finish();
}

}  // namespace reelmesh
