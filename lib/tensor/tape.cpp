#include "tensor/tape.hpp"

#include <utility>

#include "base/interruption.hpp"
#include "base/trace.hpp"

namespace reelmesh {
namespace {

thread_local Tape* recording_tape = nullptr;
thread_local const TokenRows* present_rows = nullptr;

}  // namespace

TapeValue::TapeValue(const Tensor& x)
    : number(x.number_), shape(x.shape()), dtype(x.dtype()), device(x.device()) {}

Tape* Tape::recording() { return recording_tape; }

Tape::Scope::Scope(Tape* tape) : before_(std::exchange(recording_tape, tape)) {}

Tape::Scope::~Scope() { recording_tape = before_; }

Tape::Rows::Rows(const TokenRows& rows) : before_(std::exchange(present_rows, &rows)) {}

Tape::Rows::~Rows() { present_rows = before_; }

const TokenRows& Tape::rows() {
  expect(present_rows != nullptr, "an op with parameters is recorded, but not what its rows are");
  return *present_rows;
}

Tape::LastOps::LastOps(const Tensor& gate) : tape_(recording()) {
  if (tape_ == nullptr || !tape_->computes_again()) return;
  tape_->skips_sum_ = true;
  tape_->skips_change_ = !needs(gate);
}

Tape::LastOps::~LastOps() {
  if (tape_ != nullptr) tape_->skips_sum_ = tape_->skips_change_ = false;
}

void Tape::own(Tensor& x) {
  if (x.owner_.use_count() <= 1) return;
  const std::int64_t number = x.number_;
  x = x.clone();
  x.number_ = number;
}

namespace {

Tensor once(std::optional<Tensor>& kept, bool is_last, const std::function<Tensor()>& move) {
  Tensor moved = kept ? *kept : move();
  kept = is_last ? std::nullopt : std::optional(moved);
  return moved;
}

}  // namespace

Tensor MovedRows::to_columns(const TokenRows& rows, const Tensor& x, bool is_last) {
  return once(columns_, is_last, [&] { return rows.to_columns(x); });
}

Tensor MovedRows::gather(const TokenRows& rows, const Tensor& x, bool is_last) {
  return once(all_, is_last, [&] { return rows.gather(x); });
}

std::shared_ptr<MovedRows> Tape::moved_rows(const Tensor& x) {
  const decltype(moved_from_) from{x.number_, x.data_, x.shape().back(), present_rows};
  std::shared_ptr<MovedRows> found = moved_rows_.lock();
  if (found == nullptr || x.number_ == 0 || from != moved_from_) {
    found = std::make_shared<MovedRows>();
    moved_rows_ = found;
    moved_from_ = from;
  }
  return found;
}

void Tape::record(Tensor& out, Backward backward) {
  out.number_ = ++values_;
  records_.push_back({out.number_, std::move(backward)});
}

Tensor* Tape::gradient(const TapeValue& x) {
  const auto found = gradients_.find(x.number);
  if (found == gradients_.end()) return nullptr;
  own(found->second);
  return &found->second;
}

Tensor& Tape::sum(const TapeValue& x, const Shape& shape, DType dtype, Device device) {
  expect(x.number > 0, "the sum of a gradient that is not kept");
  if (Tensor* found = gradient(x)) return *found;
  return gradients_[x.number] = Tensor::zeros(shape, dtype, device);
}

void Tape::set(const TapeValue& x, Tensor d) {
  if (!x) return;
  if (x.number < 0) return take_(static_cast<std::size_t>(-1 - x.number), d);
  d.number_ = 0;
  const bool is_first = gradients_.emplace(x.number, std::move(d)).second;
  expect(is_first, "a gradient is set twice");
}

void Tape::run_back_to(std::size_t begin) {
  const Scope paused(nullptr);
  while (records_.size() > begin) {
    const Record record = std::move(records_.back());
    records_.pop_back();
    const auto found = gradients_.find(record.out);
    if (found == gradients_.end()) continue;
    Tensor d = std::move(found->second);
    gradients_.erase(found);
    record.backward(std::move(d));
  }
}

void Tape::backward(const Tensor& out, Tensor d) {
  set(out, std::move(d));
  run_back_to(0);
}

Tensor checkpoint(int layer, Tensor x, const std::function<Tensor(Tensor)>& block) {
  const auto run = [](int number, const std::function<Tensor()>& work) {
    interruption_point();
    const trace::Mark mark(&trace::Recorder::layer, number);
    const trace::Scope scope(trace::spans::transformer_block);
    return work();
  };
  Tape* tape = Tape::recording();
  if (tape == nullptr || !tape->recomputes_blocks_) {
    return run(layer, [&] { return block(std::move(x)); });
  }
  Tensor out;
  {
    const Tape::Scope paused(nullptr);
    out = run(layer, [&] { return block(x.clone()); });
  }
  tape->record(out, [tape, run, layer, x, block](Tensor d) {
    run(layer, [&] {
      const std::size_t begin = tape->records_.size();
      Tensor again;
      {
        const Tape::Scope recording(tape);
        ++tape->blocks_again_;
        again = block(x);
        --tape->blocks_again_;
      }
      tape->set(again, std::move(d));
      again = {};
      tape->run_back_to(begin);
      return Tensor();
    });
  });
  return out;
}

}  // namespace reelmesh
