#include "pipeline/progress.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/progress.hpp"
#include "base/trace.hpp"
#include "base/units.hpp"

namespace reelmesh::pipeline {
namespace {

enum class Doing { loading, encoding, denoising, decoding, writing };
constexpr std::array doing_names{"loading", "encoding", "denoising", "decoding", "writing"};

// Whether a rank does this now.
bool does(const comm::Activity& rank, Doing doing) {
  namespace spans = trace::spans;
  const auto in = [&](auto... kinds) { return ((rank.stage == kinds.name) || ...); };
  switch (doing) {
    case Doing::loading:
      return in(spans::load, spans::copy_weights);
    case Doing::encoding:
      return in(spans::encode, spans::encode_image, spans::encode_video);
    case Doing::denoising:
      return rank.step >= 0 || in(spans::denoise_step, spans::reuse_step, spans::measure_change);
    case Doing::decoding:
      return in(spans::decode);
    case Doing::writing:
      return in(spans::write, spans::save);
  }
  return false;
}

}  // namespace

std::string ClipsProgress::line(std::int64_t complete, std::span<const comm::Activity> activities,
                                double seconds) {
  std::int64_t steps = 0;
  for (const comm::Activity& rank : activities) steps += rank.clip_steps;
  if (!std::exchange(began_, true)) {
    first_ = {complete, steps, seconds};
    last_ = seconds;
  }
  const auto any = [&](Doing doing) {
    return std::ranges::any_of(activities, [&](const auto& rank) { return does(rank, doing); });
  };
  const double passed = seconds - std::exchange(last_, seconds);
  if (any(Doing::denoising)) {
    denoising_seconds_ += passed;
  } else if (any(Doing::decoding) || any(Doing::writing)) {
    decoding_seconds_ += passed;
  }
  steps -= first_.steps;
  std::vector<std::string> parts{
      fmt::format("{} of {} clip{}", complete, clips_, clips_ == 1 ? "" : "s")};
  if (steps > 0) {
    parts.push_back(fmt::format(
        "{} of {} steps ({:.0f} %)", steps, std::max(steps, steps_),
        100.0 * static_cast<double>(steps) / static_cast<double>(std::max(steps, steps_))));
    parts.push_back(rate_text(steps, denoising_seconds_, "step"));
  }
  std::vector<const char*> names;
  for (std::size_t i = 0; i < doing_names.size(); ++i) {
    if (any(static_cast<Doing>(i))) names.push_back(doing_names.at(i));
  }
  if (!names.empty()) parts.push_back(fmt::format("{}", fmt::join(names, " and ")));
  if (const std::string left = time_left(complete, steps); !left.empty()) parts.push_back(left);
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Before a clip is decoded, nothing is known of the time of decoding.
std::string ClipsProgress::time_left(std::int64_t complete, std::int64_t steps) const {
  const std::int64_t made = complete - first_.complete;  // by this job
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
