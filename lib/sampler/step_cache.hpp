#pragma once
// Denoising steps that need not be computed: in these the transformer's blocks are left out, and
// what they added in the last computed step (the residual) is added again. Every layout computes
// the same steps. For CogVideoX they depend on settings, sampler and model alone; the rule of
// teacache for Open-Sora looks at the clip's values, and decides while the clip is denoised.
#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

/// A rule for the steps that are computed; the first and the last one always are.
struct StepCache {
  enum class Rule : std::uint8_t {
    none,      ///< all
    teacache,  ///< as TeaCache: when the time embedding has changed by so much
    every      ///< each N-th step in a part of the steps, and all steps before and after it
  };
  Rule rule = Rule::none;
  int every = 1;              ///< N
  double threshold = 0;       ///< teacache: ≥ 0
  double from = 0, to = 100;  ///< of every: per cent of the steps
  friend auto operator<=>(const StepCache&, const StepCache&) = default;

  /// "none", "teacache:0.1", "every:3", "every:3,from:20,to:80"
  std::string text() const;
  /// The inverse; nullopt for other texts and for numbers that are not permitted.
  static std::optional<StepCache> read(std::string_view text);
  /// What read() takes, for messages.
  static constexpr const char* expected =
      "none, teacache:THRESHOLD with 0 or more, or every:N[,from:A,to:B] with N from 2 to 1000 and "
      "0 <= A < B <= 100 (per cent of the steps)";
};

/// The polynomial of TeaCache, which maps the distance of time embeddings to that of the model's
/// results. The coefficient of the highest power, x⁴, is first. Takes little memory in a request
/// without coefficients, of which a job may have a million.
class CacheCoefficients {
 public:
  using Values = std::array<double, 5>;
  explicit CacheCoefficients(const Values& values = {})
      : values_(std::make_unique<const Values>(values)) {}
  CacheCoefficients(const CacheCoefficients& other) : CacheCoefficients(other.values()) {}
  CacheCoefficients(CacheCoefficients&&) = default;
  CacheCoefficients& operator=(const CacheCoefficients& other) {
    return *this = CacheCoefficients(other.values());
  }
  CacheCoefficients& operator=(CacheCoefficients&&) = default;
  ~CacheCoefficients() = default;
  const Values& values() const { return *values_; }
  friend auto operator<=>(const CacheCoefficients& a, const CacheCoefficients& b) {
    return a.values() <=> b.values();
  }
  friend bool operator==(const CacheCoefficients& a, const CacheCoefficients& b) {
    return a.values() == b.values();
  }

  std::string text() const;  ///< "c4,c3,c2,c1,c0", which read() gives back exactly
  static std::optional<CacheCoefficients> read(std::string_view text);
  static constexpr const char* expected =
      "five finite numbers c4,c3,c2,c1,c0, that of the highest power first";

  double operator()(double x) const;

 private:
  std::unique_ptr<const Values> values_;
};

/// TeaCache's rule: the polynomials of the distances are added up from the last computed step on,
/// and a step is computed unless the sum is below the threshold.
/// Source: ali-vilab/TeaCache, TeaCache4CogVideoX1.5/teacache_sample_video.py.
struct TeaCacheRule {
  double threshold = 0;
  CacheCoefficients coefficients;

  /// What a step does. sum: of the steps since the last computed one.
  struct Decision {
    bool computes = true;
    double sum = 0;
  };
  /// For a step that is neither the first nor the last. distance: from the step before.
  Decision decide(double sum, double distance) const;
};

/// For each of `calls` steps whether it is computed. distances: of rule teacache, for each step the
/// mean |e − e′| / mean |e′| of its time embedding e and that of the step before, e′; [0] is not
/// used.
std::vector<bool> computed_steps(const StepCache& cache, int calls,
                                 const CacheCoefficients& coefficients = CacheCoefficients(),
                                 std::span<const double> distances = {});

/// "31 of 50 steps are computed: 0-3, 5, 7, 49"
std::string computed_in_words(const std::vector<bool>& computed);

}  // namespace reelmesh
