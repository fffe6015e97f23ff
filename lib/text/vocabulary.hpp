#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

/// The largest spiece.model or tokenizer.json that is read, in bytes. T5's have 0.8 and 2.4 MB,
/// UMT5's 4.5 and 17 MB.
inline constexpr std::int64_t max_vocabulary_bytes = std::int64_t{64} << 20;

/// The pieces of a tokenizer, and how a text is divided into them. Ids 0 and 1 are <pad> and </s>.
class Vocabulary {
 public:
  virtual ~Vocabulary() = default;

  virtual std::int64_t size() const = 0;  ///< all ids are below it
  /// The ids of any bytes, without the </s> that ends a text.
  virtual std::vector<std::int32_t> ids(std::string_view text) const = 0;
  /// Ids as text, for messages.
  virtual std::string words(const std::vector<std::int32_t>& ids) const = 0;
  /// Whether a text that ends in </s> itself gets a second one.
  virtual bool ends_twice() const = 0;
};

}  // namespace reelmesh
