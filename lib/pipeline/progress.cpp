#include "pipeline/progress.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/progress.hpp"
#include "base/trace.hpp"
#include "base/units.hpp"

namespace reelmesh::pipeline {
namespace {

constexpr std::string_view loading = "loading", encoding = "encoding", denoising = "denoising",
                           decoding = "decoding", writing = "writing";

template <class... Kinds>
bool is_in(const comm::Activity& rank, const Kinds&... kinds) {
  return ((rank.stage == kinds.name) || ...);
}

}  // namespace

std::string_view clip_work(const comm::Activity& rank) {
  namespace spans = trace::spans;
  if (is_in(rank, spans::encode, spans::encode_image, spans::encode_video)) return encoding;
  if (is_in(rank, spans::decode)) return decoding;
  if (is_in(rank, spans::write)) return writing;
  return rank.step >= 0 || is_in(rank, spans::denoise_step) ? denoising : std::string_view();
}

std::string ClipsProgress::line(std::int64_t complete, std::span<const comm::Activity> activities,
                                double seconds) {
  std::int64_t steps = 0;
  for (const comm::Activity& rank : activities) steps += rank.clip_steps;
  if (!first_) {
    first_ = {complete, steps};
    last_ = seconds;
  }
  const auto any = [&](std::string_view work) {
    return std::ranges::any_of(activities, [&](const comm::Activity& rank) {
      if (work == loading) return is_in(rank, trace::spans::load, trace::spans::copy_weights);
      return clip_work(rank) == work || (work == writing && is_in(rank, trace::spans::save));
    });
  };
  const double passed = seconds - std::exchange(last_, seconds);
  if (any(denoising)) {
    denoising_seconds_ += passed;
  } else if (any(decoding) || any(writing)) {
    decoding_seconds_ += passed;
  }
  steps -= first_->steps;
  std::vector<std::string> parts{
      fmt::format("{} of {} clip{}", complete, clips_, clips_ == 1 ? "" : "s")};
  if (steps > 0) {
    parts.push_back(fmt::format(
        "{} of {} steps ({:.0f} %)", steps, std::max(steps, steps_),
        100.0 * static_cast<double>(steps) / static_cast<double>(std::max(steps, steps_))));
    parts.push_back(rate_text(steps, denoising_seconds_, "step"));
  }
  std::vector<std::string_view> works;
  for (const std::string_view work : {loading, encoding, denoising, decoding, writing}) {
    if (any(work)) works.push_back(work);
  }
  if (!works.empty()) parts.push_back(fmt::format("{}", fmt::join(works, " and ")));
  if (const std::string left = time_left(complete, steps); !left.empty()) parts.push_back(left);
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Before a clip is decoded, nothing is known of the time of decoding.
std::string ClipsProgress::time_left(std::int64_t complete, std::int64_t steps) const {
  const std::int64_t made = complete - first_->complete;  // by this job
  const auto steps_left = static_cast<double>(std::max<std::int64_t>(0, steps_ - steps));
  if (steps == 0 || denoising_seconds_ == 0) return {};
  const double of_steps = steps_left * denoising_seconds_ / static_cast<double>(steps);
  if (!decodes_ || made > 0) {
    const double of_decoding = made > 0 ? static_cast<double>(clips_ - complete) *
                                              decoding_seconds_ / static_cast<double>(made)
                                        : 0;
    return format_seconds(of_steps + of_decoding) + " left";
  }
  return steps_left > 0 ? format_seconds(of_steps) + " of denoising left" : "";
}

}  // namespace reelmesh::pipeline
