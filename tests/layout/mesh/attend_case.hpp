#pragma once
// Compares attention on many ranks with attention on one, on the host or on a device.
#include <gtest/gtest.h>

#include "base/trace.hpp"
#include "layout/attend.hpp"
#include "layout/mesh/random_mesh.hpp"
#include "layout/relayout.hpp"
#include "ops/attention.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {

struct AttendCase {
  std::vector<Layout> segments;
  AttentionGeometry geometry;
  DType dtype = DType::float32;
  Numerics numerics;
};

inline std::string to_string(const AttendCase& c) {
  std::string text =
      fmt::format("ring {}, batch {}, {} heads of {}, {}", c.geometry.ring, c.geometry.batch,
                  c.geometry.heads, c.geometry.channels, name_of(c.dtype));
  for (const Layout& segment : c.segments)
    text += fmt::format(", {}", reelmesh::to_string(segment));
  return text;
}

// `parts` parts of qkv [token, batch, 3, head, channel] from `part` on, for the tokens of a rank.
inline Tensor rank_parts(const Tensor& qkv, const std::vector<Layout>& segments, int rank,
                         std::int64_t part, std::int64_t parts) {
  const std::int64_t batch = qkv.shape(1), heads = qkv.shape(3), n = qkv.shape(4);
  std::int64_t tokens = 0, before = 0, done = 0;
  for (const Layout& segment : segments) tokens += segment.box(rank).numel();
  Tensor out = Tensor::empty({tokens, batch, parts, heads, n}, qkv.dtype());
  for (const Layout& segment : segments) {
    const std::int64_t all = numel(segment.global());
    Box from = whole_box(segment.global()), to = segment.box(rank);
    for (Box* box : {&from, &to}) {
      for (const std::int64_t extent : {batch, parts, heads, n}) {
        box->offset.push_back(0);
        box->extent.push_back(extent);
      }
    }
    from.offset[from.offset.size() - 3] = -part;
    from.extent[from.extent.size() - 3] = 3;
    Tensor mine = out.rows(done, segment.box(rank).numel());
    copy_box(to, qkv.rows(before, all), from, mine, to);
    before += all;
    done += segment.box(rank).numel();
  }
  return out;
}

/// Checks that attention gives the bits of one rank, and that this rank sends what mesh() predicts.
inline void check_attend(const AttendCase& c, unsigned seed, const comm::Group& world,
                         Device device = {}) {
  const auto [batch, heads, channels, ring] = c.geometry;
  std::int64_t all = 0;
  for (const Layout& segment : c.segments) all += numel(segment.global());
  const Tensor qkv = random_tensor({all, batch, 3, heads, channels}, seed, c.dtype);
  const Attend attend(world, c.segments, c.geometry, c.dtype, device, c.numerics);
  const Tensor q = rank_parts(qkv, c.segments, world.rank(), 0, 1);
  const std::int64_t mine = q.shape(0), before = trace::recorder().bytes_sent;
  const Tensor out =
      attend(
          q.reshape({mine, batch, heads, channels}).on(device),
          [&] { return rank_parts(qkv, c.segments, world.rank(), 1, 2).on(device); }, 0.3F)
          .on({});
  EXPECT_EQ(trace::recorder().bytes_sent - before,
            attend.mesh().sent_elements(world.rank()) * size_of(c.dtype))
      << to_string(c);
  // The result of one rank, from which this rank's tokens are cut out.
  const Tensor one = ops::attention(qkv.on(device), 0.3F, {}, c.numerics).on({});
  Tensor repeated = Tensor::empty(qkv.shape(), qkv.dtype());
  for (std::int64_t i = 0; i < all * batch * 3; ++i) {
    const std::int64_t bytes = heads * channels * size_of(c.dtype);
    std::copy_n(static_cast<const std::byte*>(one.raw()) + i / 3 * bytes, bytes,
                static_cast<std::byte*>(repeated.raw()) + i * bytes);
  }
  const Tensor expected = rank_parts(repeated, c.segments, world.rank(), 0, 1);
  EXPECT_TRUE(same_bits(out, expected.reshape(out.shape()))) << to_string(c);
}

}  // namespace reelmesh::test
