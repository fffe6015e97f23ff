// A file of prompts, read as .txt, .jsonl and .json.
#include "prompts.hpp"

#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(prompts) {
  static const std::filesystem::path folder = fuzz::make_folder();
  for (const char* name : {"prompts.txt", "prompts.jsonl", "prompts.json"}) {
    fuzz::write_file(folder / name, fuzz::as_text(data, size));
    fuzz::refusals_allowed(
        [&] { app::read_prompts(folder / name, {.images = folder}, "prompt.file"); });
  }
  return 0;
}
