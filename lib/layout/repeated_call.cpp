#include "layout/repeated_call.hpp"

#include "base/log.hpp"
#include "base/trace.hpp"

namespace reelmesh {

RepeatedCall::RepeatedCall(Device device, const comm::Group& group, bool capturable, Call call)
    : device_(device),
      group_(group),
      record_(device.is_cuda() && !device.only_shapes && capturable &&
              trace::recorder().level <= trace::Level::stages),
      call_(std::move(call)) {}

void RepeatedCall::record() {
  if constexpr (cuda_built) {
    bool failed = false;
    try {
      graph_ = std::make_shared<const cuda::Graph>(device_, [&] {
        const std::vector<Tensor> made = call_();
        expect(made.size() == results_.size(), "{} results of a call that had {}", made.size(),
               results_.size());
        for (std::size_t i = 0; i < made.size(); ++i) results_[i].copy_from(made[i]);
      });
    } catch (const Error& error) {
      // unavailable: there may be too little memory, since a graph needs more than the calls.
      if (error.status() != Status::internal && error.status() != Status::unavailable) throw;
      log::warning("steps run without a CUDA graph, because recording one failed: {}",
                   error.what());
      failed = true;
    }
    record_ = group_.max(std::int64_t{failed}) == 0;
    if (!record_) graph_ = nullptr;
  }
}

const std::vector<Tensor>& RepeatedCall::operator()() {
  if constexpr (cuda_built) {
    if (record_ && graph_ == nullptr && !results_.empty()) record();
    if (graph_ != nullptr) {
      graph_->replay();
      return results_;
    }
  }
  results_ = call_();
  return results_;
}

}  // namespace reelmesh
