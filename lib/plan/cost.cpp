#include "plan/cost.hpp"

#include <algorithm>

#include "models/autoencoder/decoder.hpp"
#include "models/autoencoder/memory.hpp"
#include "models/cogvideox/memory.hpp"
#include "models/opensora/memory.hpp"
#include "models/opensora/transformer.hpp"
#include "models/t5/memory.hpp"
#include "plan/decode.hpp"

namespace reelmesh {
namespace {

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

ClipCost cost_of_nothing(const Plan& plan) {
  ClipCost cost;
  cost.ranks.resize(index(plan.ranks));
  return cost;
}

// While weights are loaded, a rank needs room for some of them twice.
StageMemory stage(const ExpectedShapes& tensors, std::int64_t working, const Precision& precision) {
  return {weight_bytes(tensors, precision), std::max(working, loading_bytes(tensors, precision)),
          thread_bytes(tensors, precision)};
}

}  // namespace

std::vector<StageMemory> text_memory(const Plan& plan, const T5Config& config, std::int64_t tokens,
                                     const Precision& precision) {
  std::vector<StageMemory> ranks(index(plan.ranks));
  for (const DeviceMap::Stage& part : plan.device_map.stages()) {
    StageMemory& mine = ranks.at(index(plan.text.first + part.rank));
    const T5Part held{part.first, part.last, part.embedding, part.final_norm};
    mine.weights += t5_weight_bytes(config, held, precision);
    mine.of_a_thread =
        std::max(mine.of_a_thread, thread_bytes(t5_tensors(config, held), precision));
    mine.working = t5_working_bytes(config, tokens, precision);
  }
  return ranks;
}

ClipCost cogvideox_cost(const Plan& plan, const CogVideoXConfig& config,
                        const CogVideoXVaeConfig& vae, const DenoiseSizes& sizes,
                        const Shape& latents, std::int64_t kept_frames, std::int64_t clips,
                        const Precision& precision) {
  ClipCost cost = cost_of_nothing(plan);
  for (std::size_t replica = 0; replica < plan.denoise.size(); ++replica) {
    const RankRange& range = plan.denoise[replica];
    const DenoiseLayout layout = denoise_layout(plan, sizes, replica);
    const std::int64_t batch = sizes.branches / layout.mesh.cfg;
    const AttendMesh attention({layout.text, layout.grid},
                               {batch, sizes.heads, sizes.head_channels, layout.mesh.ring});
    for (int r = 0; r < range.count; ++r) {
      ClipCost::OfRank& mine = cost.ranks.at(index(range.first + r));
      const int place = r % layout.mesh.branch_ranks();
      mine.tokens = layout.grid.box(place);
      mine.text = layout.text.box(place);
      mine.sent_bytes = layout.step_bytes(sizes, r);
      mine.flops = layout.step_flops(sizes, r);
      const CogVideoXSizes share{clips * batch,          mine.text.numel(),
                                 mine.tokens.numel(),    attention.row_tokens(place),
                                 attention.heads(place), attention.all_tokens(),
                                 attention.ranks() == 1, attention.ulysses() > 1};
      mine.denoise = stage(cogvideox_tensors(config),
                           cogvideox_working_bytes(config, share, precision), precision);
    }
  }
  const Layout images =
      decode_layout(latents.at(1), latents.at(2), plan.decode.count, plan.speeds_of(plan.decode));
  for (int r = 0; r < plan.decode.count; ++r) {
    ClipCost::OfRank& mine = cost.ranks.at(index(plan.decode.first + r));
    const Box& box = images.box(r);
    mine.images = {{0, box.offset[0], box.offset[1]}, {kept_frames, box.extent[0], box.extent[1]}};
    mine.decode = stage(cogvideox_decoder_tensors(vae),
                        cogvideox_decode_bytes(vae, mine.images.extent, precision), precision);
  }
  return cost;
}

ClipCost open_sora_cost(const Plan& plan, const STDiTConfig& config, const OpenSoraVaeConfig& vae,
                        const STDiTClip& clip, std::int64_t clips, std::int64_t text_tokens,
                        std::int64_t frames, const Precision& precision) {
  ClipCost cost = cost_of_nothing(plan);
  const std::int64_t branches = clips * STDiT::branches;
  for (const RankRange& range : plan.denoise) {
    const SpaceTime layouts = space_time_layout(plan.shard, clip.tokens(config.patch), range.count,
                                                plan.speeds_of(range));
    const SpaceTimeSizes sizes{config.layers, config.hidden, config.heads, branches,
                               precision.size()};
    for (int r = 0; r < range.count; ++r) {
      ClipCost::OfRank& mine = cost.ranks.at(index(range.first + r));
      mine.tokens = layouts.grid.box(r);
      mine.text = {{0}, {text_tokens}};
      if (range.count > 1) {
        for (const NamedMove& move : relayouts(layouts, sizes)) {
          mine.sent_bytes += config.layers * move.sent_bytes(r, sizes);
        }
      }
      const std::int64_t shared =
          layouts.frames_are_whole() ? 0 : layouts.heads(config.heads).box(r).extent[2];
      const STDiTSizes share{branches,
                             text_tokens,
                             layouts.frames.box(r).extent,
                             layouts.places.box(r).extent,
                             layouts.frames.global()[1],
                             shared,
                             range.count == 1};
      mine.flops = stdit_step_flops(config, share);
      mine.denoise =
          stage(stdit_tensors(config), stdit_working_bytes(config, share, precision), precision);
    }
  }
  const Shape& latents = clip.latents;
  const Layout images =
      OpenSoraDecoder::layout(vae, {latents[0], config.in_channels, latents[1], latents[2]},
                              plan.decode.count, plan.speeds_of(plan.decode));
  for (int r = 0; r < plan.decode.count; ++r) {
    ClipCost::OfRank& mine = cost.ranks.at(index(plan.decode.first + r));
    const Box& box = images.box(r);
    mine.images = {{box.offset[0], box.offset[2], box.offset[3]},
                   {box.extent[0], box.extent[2], box.extent[3]}};
    // Frames of the video that belong to these latents, as evenly as these.
    const std::int64_t made =
        latents[0] == 0 ? 0 : (frames * box.extent[0] + latents[0] - 1) / latents[0];
    mine.decode =
        stage(open_sora_decoder_tensors(vae),
              open_sora_decode_bytes(
                  vae, {made, box.extent[2], box.extent[3], latents[1] * latents[2]}, precision),
              precision);
  }
  return cost;
}

}  // namespace reelmesh
