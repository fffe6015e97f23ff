#pragma once
// The clip in corpus/clip/whole.h5, as a job that asks for it describes it.
#include "store/clip.hpp"

namespace reelmesh::fuzz {

inline ClipRecord corpus_clip() {
  ClipRecord r;
  r.prompt = "a cat";
  r.settings.seed = 42;
  r.settings.steps = 1;
  r.settings.guidance = 6;
  r.settings.fps = 8;
  r.scheduler = "CogVideoXDDIMScheduler";
  r.dtype = "float32";
  r.fingerprint =
      "model 53b024244899defde2c94fab03c2bd52, backend cpu, dynamic-guidance no, tf32 no, "
      "reproducible yes, attention auto";
  r.token_ids = {4, 428, 1};
  r.token_ids.resize(32);
  return r;
}

inline ClipShapes corpus_clip_shapes() {
  return {.video = {1, 16, 16, 3}, .latents = {1, 16, 2, 2}, .prompt_embeds = {}};
}

}  // namespace reelmesh::fuzz
