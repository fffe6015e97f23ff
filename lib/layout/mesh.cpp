#include "layout/mesh.hpp"

#include <numeric>

namespace reelmesh {

AttendMesh::AttendMesh(const std::vector<Layout>& segments, const AttendGeometry& geometry)
    : geometry_(geometry) {
  expect(!segments.empty(), "attention over no tokens");
  tokens_.resize(static_cast<std::size_t>(segments.front().ranks()));
  for (const Layout& segment : segments) {
    expect(segment.ranks() == ranks(), "segments over {} and {} ranks", ranks(), segment.ranks());
    for (int r = 0; r < ranks(); ++r) {
      tokens_[static_cast<std::size_t>(r)] += segment.box(r).numel();
    }
  }
  expect(geometry.ring > 0 && ranks() % geometry.ring == 0, "{} ranks in {} rows", ranks(),
         geometry.ring);
}

std::int64_t AttendMesh::first_head(int rank) const {
  return cut_offset(geometry_.heads, ulysses(), column(rank));
}

std::int64_t AttendMesh::heads(int rank) const {
  return cut_offset(geometry_.heads, ulysses(), column(rank) + 1) - first_head(rank);
}

std::int64_t AttendMesh::row_tokens(int rank) const {
  const auto first = tokens_.begin() + first_of_row(rank);
  return std::accumulate(first, first + ulysses(), std::int64_t{0});
}

std::int64_t AttendMesh::all_tokens() const {
  return std::accumulate(tokens_.begin(), tokens_.end(), std::int64_t{0});
}

std::int64_t AttendMesh::sent_elements(int rank) const {
  const std::int64_t row = geometry_.batch * geometry_.channels;  // of one token and head
  const std::int64_t queries = tokens(rank) * (geometry_.heads - heads(rank));
  const std::int64_t results = (row_tokens(rank) - tokens(rank)) * heads(rank);
  std::int64_t keys = 0;
  for (int to = 0; to < ranks(); ++to) {
    if (to != rank && attends(to)) keys += 2 * tokens(rank) * heads(to);
  }
  return row * (queries + keys + results);
}

std::int64_t AttendMesh::flops(int rank) const {
  return 4 * geometry_.batch * geometry_.channels * heads(rank) * row_tokens(rank) * all_tokens();
}

}  // namespace reelmesh
