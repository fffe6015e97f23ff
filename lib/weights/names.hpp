#pragma once
#include <string>
#include <vector>

namespace reelmesh {

/// The other names under which checkpoints may hold the tensor `name`, preferred first:
/// older versions of diffusers called the attention's to_q, to_k, to_v and to_out.0 query, key,
/// value and proj_attn; transformers ties T5's shared.weight to encoder.embed_tokens.weight and
/// writes either or both.
std::vector<std::string> older_names(const std::string& name);

/// The current name of a tensor that a checkpoint calls `name`; `name` itself if that is current.
std::string current_name(const std::string& name);

/// Names for messages, those that differ only in their numbers together, with how many there are:
/// "blocks.*.attn.bias (28), head.bias".
std::string grouped(const std::vector<std::string>& names);

}  // namespace reelmesh
