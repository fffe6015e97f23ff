#include "models/common/experts.hpp"

#include <utility>

#include "base/trace.hpp"
#include "tensor/memory.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {

Experts::Experts(Device device, double boundary, bool in_turn, Load load)
    : device_(device), boundary_(boundary), in_turn_(in_turn), load_(std::move(load)) {
  if (in_turn_) return;
  for (int expert : {0, 1}) experts_[static_cast<std::size_t>(expert)] = load_(expert);
  used_ = 0;
}

const Denoiser& Experts::used() const {
  expect(used_ >= 0, "an expert is asked for before it is loaded");
  return *experts_[static_cast<std::size_t>(used_)];
}

bool Experts::use_together(int expert) const {
  const bool same = expert == used_;
  used_ = in_turn_ && !same ? -1 : expert;
  if (!in_turn_ || same) return false;
  const auto free_pages = [&] {
    if (!device_.only_shapes) release_free_memory();
  };
  for (auto& other : experts_) other.reset();
  free_pages();
  {
    const trace::Scope scope(trace::spans::load);
    const PurposeScope purpose(Purpose::weights);
    experts_[static_cast<std::size_t>(expert)] = load_(expert);
  }
  free_pages();  // of the unpacked copies of weights
  used_ = expert;
  return true;
}

}  // namespace reelmesh
