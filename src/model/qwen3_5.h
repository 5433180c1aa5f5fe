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

}  // namespace pergola
