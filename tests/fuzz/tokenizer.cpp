// A sentencepiece model (spiece.model), which then encodes a text.
#include "text/tokenizer.hpp"
#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(tokenizer) {
  static const std::filesystem::path folder = fuzz::make_folder();
  fuzz::write_file(folder / "spiece.model", fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] {
    const Tokenizer tokenizer = Tokenizer::open(folder);
    for (const char* text : {"a red circle falls", "ﬁ <extra_id_5> Å\xff</s>", "  \t０"}) {
      fuzz::refusals_allowed([&] { tokenizer.encode(text, 12); });
    }
  });
  return 0;
}
