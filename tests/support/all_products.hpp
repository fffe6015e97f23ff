#pragma once
#include <string_view>

#include "ops/amx.hpp"
#include "ops/products.hpp"

namespace reelmesh::test {

/// Calls f with each way in which products of bfloat16 are computed on this processor, and its
/// name.
template <class F>
void with_all_products(const F& f) {
  for (const Products products : {Products::automatic, Products::float32, Products::bfloat16}) {
    if (products == Products::bfloat16 && !ops::has_bfloat16_products()) continue;
    ops::choose_products(products);
    f(ops::bfloat16_products());
  }
  ops::choose_products(Products::automatic);
  if (!ops::has_bfloat16_products()) return;  // with AMX there are also oneDNN's
  ops::amx::use_plain_kernels(true);
  f("AMX's plain kernels");
  ops::amx::use_plain_kernels(false);
}

}  // namespace reelmesh::test
