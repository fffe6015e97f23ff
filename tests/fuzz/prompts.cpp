// A file of prompts, read as .txt and as .jsonl.
#include "prompts.hpp"

#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(prompts) {
  static const std::filesystem::path folder = fuzz::make_folder();
  for (const char* name : {"prompts.txt", "prompts.jsonl"}) {
    fuzz::write_file(folder / name, fuzz::as_text(data, size));
    fuzz::refusals_allowed([&] { app::read_prompts(folder / name, "", "prompt.file"); });
  }
  return 0;
}
