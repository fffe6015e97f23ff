// An encoded sample in the cache of a training job. corpus/sample/whole.h5 is valid for the sample
// below.
#include "fuzz/fuzz.hpp"
#include "store/sample_cache.hpp"

using namespace reelmesh;

FUZZ_TARGET(sample) {
  static const std::filesystem::path folder = fuzz::make_folder();
  static const Shape latents{2, 2, 3, 4}, embeds{3, 4};
  static const CachedSample sample{folder / "000000.h5",
                                   {"a cat", "a.mp4", "0123456789abcdef", "vae 1", "t5 2"},
                                   {latents, latents, embeds}};
  fuzz::write_file(sample.path, fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] {
    std::string problem;
    const auto file = SampleFile::open(sample, problem);
    if (!file) return;
    file->is_whole();
    file->read(&SampleShapes::latent_mean, {{1, 0, 1, 0}, {1, 2, 1, 4}});
    file->read(&SampleShapes::latent_std, whole_box(latents));
    file->read(&SampleShapes::prompt_embeds, whole_box(embeds));
  });
  return 0;
}
