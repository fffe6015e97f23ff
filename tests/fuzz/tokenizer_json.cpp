// tokenizer.json, which then encodes texts.
#include "fuzz/fuzz.hpp"
#include "text/tokenizer.hpp"

using namespace reelmesh;

FUZZ_TARGET(tokenizer_json) {
  static const std::filesystem::path folder = fuzz::make_folder();
  fuzz::write_file(folder / "tokenizer.json", fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] {
    const Tokenizer tokenizer = Tokenizer::open(folder);
    for (const char* text :
         {"a red  circle", "ab <extra_id_0> e\u0301\xff</s>A", " \t\u00a8\uff10\r\n"}) {
      Encoded encoded = tokenizer.encode(text, 8);
      expect(std::ssize(encoded.ids) == 8, "{} ids, expected 8", encoded.ids.size());
      tokenizer.accept(std::move(encoded.ids), 8, "token_ids");
    }
  });
  return 0;
}
