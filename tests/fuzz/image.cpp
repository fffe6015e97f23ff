// A PNG or JPEG file (prompt.image), which is then resized.
#include "media/image.hpp"

#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(image) {
  static const std::filesystem::path path = fuzz::make_folder() / "image";
  fuzz::write_file(path, fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] { media::image_size(path, "image"); });
  fuzz::refusals_allowed([&] { media::resize_lanczos(media::read_image(path, "image"), 16, 24); });
  return 0;
}
