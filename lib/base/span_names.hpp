#pragma once
// Names of the spans in a trace. tools/reelmesh_results/span_names.py reads them from this file: it
// expects one line for each lane and each span, written as those below. `reelmesh-trace --help`
// lists them for users.
#include <array>
#include <string_view>

namespace reelmesh::trace {

enum class Level { off, stages, layers, ops };
inline constexpr std::array<std::string_view, 4> level_names{"off", "stages", "layers", "ops"};

/// What a rank is busy with.
namespace lanes {
inline constexpr const char* compute = "compute";
inline constexpr const char* exchange = "exchange";
inline constexpr const char* file = "file";
inline constexpr const char* waiting = "waiting";
}  // namespace lanes

struct SpanKind {
  const char* name;
  Level level;  ///< recorded at this trace level and at finer ones
  const char* lane;
  const char* meaning;  ///< in Markdown
};

/// In the order of the work.
namespace spans {
// clang-format off
inline constexpr SpanKind prepare{"prepare", Level::stages, lanes::file, "start of the program, planning, checks and the job's files, until the trace begins"};
inline constexpr SpanKind hash{"hash", Level::stages, lanes::file, "hashing of the checkpoint's weights"};
inline constexpr SpanKind check_inputs{"check_inputs", Level::stages, lanes::file, "images and videos that clips begin from: decoded and hashed once"};
inline constexpr SpanKind measure{"measure", Level::stages, lanes::compute, "speeds of the machine are measured; only at `ops`"};
inline constexpr SpanKind copy_weights{"copy_weights", Level::stages, lanes::file, "copying of the weights to each host (model.copy-to)"};
inline constexpr SpanKind load{"load", Level::stages, lanes::file, "loading of weights"};
inline constexpr SpanKind encode{"encode", Level::stages, lanes::compute, "text encoder: the layers that the rank has, for one text"};
inline constexpr SpanKind encode_image{"encode_image", Level::stages, lanes::compute, "from an image to latents"};
inline constexpr SpanKind encode_video{"encode_video", Level::stages, lanes::compute, "from a video to latents"};
inline constexpr SpanKind denoise_step{"denoise_step", Level::stages, lanes::compute, "sampler step of a whole batch, with the number of its first clip"};
inline constexpr SpanKind denoise_steps{"denoise_steps", Level::stages, lanes::compute, "all steps of a batch; only in simulated traces of long jobs"};
inline constexpr SpanKind reuse_step{"reuse_step", Level::stages, lanes::compute, "step of a batch without the blocks of the transformer (sample.cache)"};
inline constexpr SpanKind measure_change{"measure_change", Level::stages, lanes::compute, "how much the input of the blocks has changed since the step before (teacache of Open-Sora)"};
inline constexpr SpanKind train_step{"train_step", Level::stages, lanes::compute, "training step of all clips of a batch that a rank takes part in"};
inline constexpr SpanKind validate{"validate", Level::stages, lanes::compute, "validation of a training: the loss of its clips, without gradients"};
inline constexpr SpanKind make_samples{"make_samples", Level::stages, lanes::compute, "clips that a training makes with what it has learned so far"};
inline constexpr SpanKind save{"save", Level::stages, lanes::file, "writing of restart files"};
inline constexpr SpanKind decode{"decode", Level::stages, lanes::compute, "from latents to a video"};
inline constexpr SpanKind handover{"handover", Level::stages, lanes::exchange, "transfer of an array from the ranks of one stage to those of the next"};
inline constexpr SpanKind write{"write", Level::stages, lanes::file, "writing of a clip, or of an encoded sample of a training"};
inline constexpr SpanKind write_trace{"write_trace", Level::stages, lanes::file, "writing of the trace so far"};
inline constexpr SpanKind wait{"wait", Level::stages, lanes::waiting, "wait for other ranks between the stages, or until the job ends"};
inline constexpr SpanKind t5_layer{"t5_layer", Level::layers, lanes::compute, "layer of the text encoder"};
inline constexpr SpanKind encode_batch{"encode_batch", Level::layers, lanes::compute, "frames that the autoencoder encodes together"};
inline constexpr SpanKind transformer_block{"transformer_block", Level::layers, lanes::compute, "layer of the transformer; of Open-Sora, a spatial and a temporal one"};
inline constexpr SpanKind decode_batch{"decode_batch", Level::layers, lanes::compute, "frames that the autoencoder decodes together"};
inline constexpr SpanKind decode_frame{"decode_frame", Level::layers, lanes::compute, "frame that the autoencoder decodes by itself"};
inline constexpr SpanKind product{"product", Level::ops, lanes::compute, "matrix product"};
inline constexpr SpanKind attention{"attention", Level::ops, lanes::compute, "attention to all keys, or to those that have arrived"};
inline constexpr SpanKind attention_backward{"attention_backward", Level::ops, lanes::compute, "gradients of attention"};
inline constexpr SpanKind convolution{"convolution", Level::ops, lanes::compute, "convolution"};
inline constexpr SpanKind norm{"norm", Level::ops, lanes::compute, "normalization, with what is computed in the same pass"};
inline constexpr SpanKind exchange{"exchange", Level::ops, lanes::exchange, "exchange within a stage: attention, layouts, halos"};
inline constexpr SpanKind guidance{"guidance", Level::ops, lanes::exchange, "exchange of the two branches of guidance"};
inline constexpr SpanKind weights{"weights", Level::ops, lanes::exchange, "wait for weights that other ranks or the host keep"};
// clang-format on
}  // namespace spans

}  // namespace reelmesh::trace
