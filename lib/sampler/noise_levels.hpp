#pragma once
#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reelmesh {

/// The noise levels of all steps as the user gives them, before the shift: those that a distilled
/// model has learned. As `sigmas` of set_timesteps of diffusers' FlowMatchEulerDiscreteScheduler.
/// Takes little memory in a request without levels, of which a job may have a million.
class NoiseLevels {
 public:
  using Values = std::vector<double>;
  explicit NoiseLevels(Values values)
      : values_(std::make_unique<const Values>(std::move(values))) {}
  NoiseLevels(const NoiseLevels& other) : NoiseLevels(other.values()) {}
  NoiseLevels(NoiseLevels&&) = default;
  NoiseLevels& operator=(const NoiseLevels& other) { return *this = NoiseLevels(other.values()); }
  NoiseLevels& operator=(NoiseLevels&&) = default;
  ~NoiseLevels() = default;
  const Values& values() const { return *values_; }
  int steps() const { return static_cast<int>(values().size()); }
  friend auto operator<=>(const NoiseLevels& a, const NoiseLevels& b) {
    return a.values() <=> b.values();
  }
  friend bool operator==(const NoiseLevels& a, const NoiseLevels& b) {
    return a.values() == b.values();
  }

  std::string text() const;  ///< "1,0.75,0.5,0.25", which read() gives back exactly
  static std::optional<NoiseLevels> read(std::string_view text);
  static constexpr const char* expected =
      "1 to 1000 numbers above 0 and at most 1, each lower than the one before, such as "
      "1,0.75,0.5,0.25";

 private:
  std::unique_ptr<const Values> values_;
};

}  // namespace reelmesh
