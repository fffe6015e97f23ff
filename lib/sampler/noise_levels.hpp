#pragma once
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reelmesh {

/// The noise levels of all steps as the user gives them, before the shift: those that a distilled
/// model has learned. As `sigmas` of set_timesteps of diffusers' FlowMatchEulerDiscreteScheduler.
class NoiseLevels {
 public:
  explicit NoiseLevels(std::vector<double> values) : values_(std::move(values)) {}
  const std::vector<double>& values() const { return values_; }
  int steps() const { return static_cast<int>(values_.size()); }
  friend auto operator<=>(const NoiseLevels&, const NoiseLevels&) = default;

  std::string text() const;  ///< "1,0.75,0.5,0.25", which read() gives back exactly
  static std::optional<NoiseLevels> read(std::string_view text);
  static constexpr const char* expected =
      "1 to 1000 numbers above 0 and at most 1, each lower than the one before, such as "
      "1,0.75,0.5,0.25";

 private:
  std::vector<double> values_;
};

}  // namespace reelmesh
