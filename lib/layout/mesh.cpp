#include "layout/mesh.hpp"

#include <algorithm>

namespace reelmesh {

std::string to_string(const Mesh& mesh) {
  return fmt::format("cfg {} x ring {} x ulysses {}", mesh.cfg, mesh.ring, mesh.ulysses);
}

AttentionMesh::AttentionMesh(const std::vector<Layout>& segments, const AttentionGeometry& geometry)
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
  row_tokens_.resize(static_cast<std::size_t>(geometry.ring));
  for (int r = 0; r < ranks(); ++r) {
    row_tokens_[static_cast<std::size_t>(row(r))] += tokens(r);
    all_tokens_ += tokens(r);
  }
  rows_with_tokens_ = std::ranges::count_if(row_tokens_, [](auto tokens) { return tokens > 0; });
}

std::int64_t AttentionMesh::first_head(int rank) const {
  return cut_offset(geometry_.heads, ulysses(), column(rank));
}

std::int64_t AttentionMesh::heads(int rank) const {
  return cut_offset(geometry_.heads, ulysses(), column(rank) + 1) - first_head(rank);
}

std::int64_t AttentionMesh::row_tokens(int rank) const {
  return row_tokens_.at(static_cast<std::size_t>(row(rank)));
}

std::int64_t AttentionMesh::sent_elements(int rank) const {
  const std::int64_t element = geometry_.batch * geometry_.channels;  // per token and head
  const std::int64_t queries = tokens(rank) * (geometry_.heads - heads(rank));
  const std::int64_t results = (row_tokens(rank) - tokens(rank)) * heads(rank);
  const std::int64_t in_row = 2 * queries;
  const std::int64_t to_rows =
      attends(rank) ? 2 * row_tokens(rank) * heads(rank) * (rows_with_tokens_ - 1) : 0;
  return element * (queries + in_row + to_rows + results);
}

std::vector<std::int64_t> attention_share(const Mesh& mesh, int rank, std::int64_t heads,
                                          std::initializer_list<const Layout*> segments) {
  const int column = rank % mesh.ulysses, first_of_row = rank - column;
  std::vector<std::int64_t> share;
  std::int64_t of_row = 0;
  for (const Layout* segment : segments) {
    share.push_back(segment->box(rank).numel());
    for (int i = 0; i < mesh.ulysses; ++i) of_row += segment->box(first_of_row + i).numel();
  }
  share.push_back(of_row);
  share.push_back(cut_offset(heads, mesh.ulysses, column + 1) -
                  cut_offset(heads, mesh.ulysses, column));
  return share;
}

}  // namespace reelmesh
