#pragma once
// The lanes and spans of span_names.hpp as lists. In a trace they have the number of their place.
#include <array>

#include "base/span_names.hpp"

namespace reelmesh::trace {

inline constexpr std::array all_lanes{lanes::compute, lanes::exchange, lanes::file, lanes::waiting};
inline constexpr std::array all_spans{spans::prepare,
                                      spans::hash,
                                      spans::check_inputs,
                                      spans::measure,
                                      spans::copy_weights,
                                      spans::load,
                                      spans::encode,
                                      spans::encode_image,
                                      spans::encode_video,
                                      spans::denoise_step,
                                      spans::denoise_steps,
                                      spans::reuse_step,
                                      spans::measure_change,
                                      spans::train_step,
                                      spans::validate,
                                      spans::make_samples,
                                      spans::save,
                                      spans::decode,
                                      spans::handover,
                                      spans::write,
                                      spans::write_trace,
                                      spans::wait,
                                      spans::t5_layer,
                                      spans::encode_batch,
                                      spans::transformer_block,
                                      spans::decode_batch,
                                      spans::decode_frame,
                                      spans::product,
                                      spans::attention,
                                      spans::attention_backward,
                                      spans::convolution,
                                      spans::norm,
                                      spans::exchange,
                                      spans::guidance,
                                      spans::weights};

}  // namespace reelmesh::trace
