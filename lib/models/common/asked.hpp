#pragma once
#include "tensor/ledger.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh {

/// The tensors of a model: those that make(checkpoint), which makes it, asks for.
template <class Make>
ExpectedShapes asked_by(const Make& make) {
  Ledger ledger({});
  const DryRun dry_run(ledger);
  ExpectedShapes asked;
  make(Checkpoint::of_shapes(&asked));
  return asked;
}

/// Those of a model of this class. more: the constructor's arguments between weights and dtype.
template <class Model, class... More>
ExpectedShapes tensors_of(const More&... more) {
  return asked_by([&](const Checkpoint& weights) { Model(weights, more..., DType::float32); });
}

}  // namespace reelmesh
