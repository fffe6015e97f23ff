#include "layout/clip_layout.hpp"

namespace reelmesh {

Layout DenoiseLayout::conditioning(std::int64_t count, std::int64_t branches,
                                   std::int64_t channels) const {
  bool whole = true;  // on every rank
  for (int rank = 0; rank < text.ranks(); ++rank) {
    whole = whole && text.box(rank) == whole_box(text.global());
  }
  expect((whole || text.global() == Shape{count}) && branches % mesh.cfg == 0,
         "{} tokens of {} branches in a layout of {} text tokens and cfg {}", count, branches,
         text.global(), mesh.cfg);
  const std::int64_t share = branches / mesh.cfg;
  std::vector<Box> boxes;
  boxes.reserve(static_cast<std::size_t>(mesh.ranks()));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const Box own = whole ? Box{{0}, {count}} : text.box(branch_rank(rank));
    const std::int64_t first = share * (rank / mesh.branch_ranks());
    boxes.push_back({{own.offset[0], first, 0}, {own.extent[0], share, channels}});
  }
  return {{count, branches, channels}, std::move(boxes)};
}

Layout latents_of_tokens(const Layout& tokens, const Shape& patch, const Shape& latents) {
  Layout layout = tokens;
  for (std::size_t axis = 0; axis < patch.size(); ++axis) {
    layout = layout.scaled(axis, patch[axis]).cropped(axis, 0, latents.at(axis));
  }
  return layout;
}

}  // namespace reelmesh
