#pragma once
#include "ops/rows.hpp"

namespace reelmesh {

/// Rows that every rank has, such as the tokens of a caption. Columns are divided as those of the
/// rows of another kind, which must outlive the object.
class WholeRows final : public TokenRows {
 public:
  explicit WholeRows(const TokenRows& columns) : columns_(&columns) {}
  Range own_columns(std::int64_t columns) const override { return columns_->own_columns(columns); }
  Tensor to_columns(const Tensor& x) const override {
    const Range own = own_columns(x.shape(1));
    return ops::columns(x, own.begin, own.count);
  }
  Tensor gather(const Tensor& x) const override { return x; }
  Tensor whole(const Tensor& own, std::int64_t columns) const override {
    return columns_->whole(own, columns);
  }
  std::int64_t first_rows() const override { return 0; }

 private:
  const TokenRows* columns_;
};

}  // namespace reelmesh
