#pragma once
#include <string>
#include <vector>

namespace reelmesh {

/// The other names under which checkpoints may hold the tensor `name`, preferred first:
/// older versions of diffusers called the attention's to_q, to_k, to_v and to_out.0 query, key,
/// value and proj_attn; transformers ties T5's shared.weight to encoder.embed_tokens.weight and
/// writes either or both; Wan's own code, and ComfyUI's files, call attn1 self_attn, and so on.
std::vector<std::string> older_names(const std::string& name);

/// The current name of a tensor that a checkpoint calls `name`; `name` itself if that is current.
std::string current_name(const std::string& name);

/// A name without the numbers of blocks and layers: "blocks.7.attn1.to_out.0" →
/// "blocks.*.attn1.to_out.0", also with '_' for '.'.
std::string without_numbers(const std::string& name);

/// Names for messages, those that are equal without numbers together, with how many there are:
/// "blocks.*.attn.bias (28), head.bias".
std::string grouped(const std::vector<std::string>& names);

}  // namespace reelmesh
