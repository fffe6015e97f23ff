// A prompt for the tokenizer, which accepts any bytes.
#include "fuzz/fuzz.hpp"
#include "text/tokenizer.hpp"

using namespace reelmesh;

FUZZ_TARGET(tokenize) {
  static const Tokenizer tokenizer =
      Tokenizer::open(std::filesystem::path(REELMESH_TEST_DATA) / "opensora/v1_0/tokenizer");
  for (const std::int64_t length : {1, 16, 1024}) {
    fuzz::refusals_allowed([&] {
      Encoded text = tokenizer.encode(fuzz::as_text(data, size), length);
      expect(std::ssize(text.ids) == length, "{} ids, expected {}", text.ids.size(), length);
      tokenizer.accept(std::move(text.ids), length, "token_ids");
    });
  }
  return 0;
}
