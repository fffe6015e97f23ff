#include "layout/hand_over.hpp"

#include <array>

#include "base/trace.hpp"

namespace reelmesh {

std::string MessageKey::text() const {
  static constexpr std::array names{
      "encoded input", "rows of the image",       "embeddings", "input", "rows of the input",
      "latents",       "embeddings to be written"};
  const auto index = static_cast<std::size_t>(kind);
  if (index >= names.size()) return "something else";
  return fmt::format("the {} of clip {} (batch {})", names.at(index), clip, sequence);
}

HandOver::HandOver(const comm::Group& group, const MessageKey& key, const Tensor& x,
                   const Move& move, DType dtype) {
  const Box source = move.source_box(group.rank()), target = move.target_box(group.rank());
  if (move.from == move.to && move.from_first == move.to_first && !source.empty()) {
    target_ = x;
    return;
  }
  target_ = Tensor::empty(target.extent, dtype);
  if (source.empty() && target.empty()) return;
  exchange_ = std::make_unique<const Exchange>(group, std::vector{move});
  const trace::HandOverMark mark;
  pending_ = exchange_->begin({source.empty() ? Tensor::empty(source.extent, dtype) : x},
                              {&target_, 1}, key);
}

Tensor HandOver::finish() {
  if (exchange_ != nullptr) pending_.finish();
  return std::move(target_);
}

}  // namespace reelmesh
