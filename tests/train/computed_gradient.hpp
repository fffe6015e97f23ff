#pragma once
// Gradients that a group of ranks computes, whole.
#include <gtest/gtest.h>

#include "base/hash.hpp"
#include "layout/relayout.hpp"
#include "models/common/trainable.hpp"
#include "ops/pointwise.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {

/// Who computes the gradients of a case, and how.
struct GradientRun {
  comm::Group group;
  Device device;
  DType dtype = DType::float32;
  std::vector<int> parts;  ///< into which frames, rows and columns of tokens are cut
  int ring = 1;
  Residence residence = Residence::replicated;
  bool recomputes_blocks = true;
};

struct CaseGradient {
  double loss = 0;
  std::vector<std::string> modules;  ///< of a LoRA
  std::vector<std::string> names;    ///< of the matrices
  std::vector<Tensor> gradients;     ///< of each of them, whole, on every rank
};

/// This rank's box of an array that every rank has.
inline Tensor own_part(const Tensor& whole, const Layout& layout, const comm::Group& group) {
  const Box box = own_box(layout, group);
  Tensor own = Tensor::empty(box.extent, whole.dtype());
  copy_box(box, whole, whole_box(layout.global()), own, box);
  return own;
}

/// Lets the model compute with these values, after others: nothing may be left of those.
inline void set_values(Trainable& model, const std::function<Tensor(std::size_t)>& value) {
  for (const float factor : {-0.5F, 1.0F}) {
    model.set_together([&](std::size_t first, std::size_t count) {
      std::vector<Tensor> values;
      for (std::size_t i = first; i < first + count; ++i) {
        values.push_back(ops::scaled(value(i), factor));
      }
      return values;
    });
  }
}

/// elements: of the latents of all ranks. compares_forward: whether the forward pass alone must
/// have the same loss. Collective over the group.
inline CaseGradient computed_gradient(const Trainable& model, Trainable::Prepared& prepared,
                                      const TrainingSample& sample, const comm::Group& group,
                                      std::int64_t elements, bool compares_forward) {
  std::vector<Tensor> own(model.matrices().size());
  std::vector<int> taken(own.size());
  const ops::ExactSum of_rank =
      prepared.gradient_together(sample, [&](std::size_t i, const Tensor& gradient) {
        ++taken[i];
        own[i] = gradient;
      });
  EXPECT_EQ(taken, std::vector<int>(own.size(), 1)) << "gradients of each matrix";
  if (compares_forward) {
    const ops::ExactSum forward = prepared.losses_together(sample);
    EXPECT_TRUE(forward.high == of_rank.high && forward.middle == of_rank.middle &&
                forward.low == of_rank.low && forward.lost == of_rank.lost)
        << "the forward pass alone has another loss";
  }
  CaseGradient result;
  std::vector<std::int64_t> sums{of_rank.high, of_rank.middle, of_rank.low, of_rank.lost};
  group.sum(sums);
  const ops::ExactSum sum{sums[0], sums[1], sums[2], sums[3]};
  result.loss = sum.value() / static_cast<double>(elements);
  for (const LoraTarget& target_of : model.targets()) result.modules.push_back(target_of.module);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const TrainedMatrix& matrix = model.matrices()[i];
    const Layout layout = matrix.layout(prepared.columns(), group.size());
    result.names.push_back(matrix.name);
    result.gradients.push_back(
        relayout({own[i], layout, group}, Layout::replicated(layout.global(), group.size())).local);
  }
  return result;
}

inline void expect_same(const CaseGradient& a, const CaseGradient& b, const std::string& what) {
  EXPECT_EQ(a.loss, b.loss) << what;
  ASSERT_EQ(a.names, b.names) << what;
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(a.gradients[i], b.gradients[i])) << what << ", " << a.names[i];
  }
}

/// The loss, and the hash of each gradient, a line each: for ranks to compare without the arrays.
inline std::string text_of(const CaseGradient& gradient) {
  std::string text = fmt::format("loss {:a}\n", gradient.loss);
  for (std::size_t i = 0; i < gradient.gradients.size(); ++i) {
    const Tensor& values = gradient.gradients[i];
    const std::string_view bytes(static_cast<const char*>(values.raw()), values.bytes());
    text += fmt::format("{} {} {:x}\n", gradient.names[i], reelmesh::to_string(values.shape()),
                        hash_of(bytes));
  }
  return text;
}

}  // namespace reelmesh::test
