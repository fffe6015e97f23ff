// tokenizer_config.json beside a valid spiece.model.
#include "fuzz/fuzz.hpp"
#include "text/tokenizer.hpp"

using namespace reelmesh;

namespace {

std::filesystem::path folder_with_model() {
  std::filesystem::path folder = fuzz::make_folder();
  std::filesystem::copy_file(
      std::filesystem::path(REELMESH_TEST_DATA) / "opensora/v1_0/tokenizer/spiece.model",
      folder / "spiece.model");
  return folder;
}

}  // namespace

FUZZ_TARGET(tokenizer_config) {
  static const std::filesystem::path folder = folder_with_model();
  fuzz::write_file(folder / "tokenizer_config.json", fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] { Tokenizer::open(folder).encode("a <extra_id_7> circle", 12); });
  return 0;
}
