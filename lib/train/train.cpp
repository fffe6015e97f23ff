#include "train/train.hpp"

namespace reelmesh::train {

// The interface only: the training itself is not there yet.
Status train(const comm::Group&, const Job&, const ProgramInfo&, comm::Watchdog*) {
  fail(Status::internal, "training is not complete in this version");
}

}  // namespace reelmesh::train
