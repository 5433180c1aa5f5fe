#pragma once

#include "format/checkpoint.h"
#include "model/blueprint.h"

namespace pergola {

/// The text model of the Qwen3.5 family (Qwen3-Next, Qwen3.5, 3.6, 3.8): layers of gated delta nets and gated
/// attention, dense or mixture-of-experts feed-forward. Takes the nested and the flat configuration, tensor prefixes
/// `model.language_model.`, `model.` and `language_model.model.`, experts one by one or fused, a head of its own or
/// tied. Vision tensors and the multi-token-prediction head (`mtp.*`) are not read. Throws Error as read_blueprint
/// does.
ModelBlueprint read_qwen3_5(const Checkpoint& checkpoint);
ModelBlueprint read_qwen3_5_moe(const Checkpoint& checkpoint);

/// Makes `qkv` and `z` of a block from its `qkvz`, whose rows are grouped by key head: the head's q, its k, v of its
/// value heads, z of its value heads. Throws Error as Checkpoint::select_outputs.
void split_qkvz(const Checkpoint& checkpoint, DeltaNetBlueprint& block);

}  // namespace pergola
