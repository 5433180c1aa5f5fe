#pragma once

#include "model/decoder_family.h"

namespace pergola {

// The families that read_decoder knows, one constant each. Facts are from the published configurations and from
// transformers' implementations, against which tests/model/architectures_test.cc compares each.

extern const DecoderFamily kLlama;     ///< Llama 2, 3.x, SmolLM 1 and 2, and what shares their class
extern const DecoderFamily kMistral;   ///< Mistral 7B to Large, NeMo, Small, Devstral, Ministral (also YaRN)
extern const DecoderFamily kQwen2;     ///< Qwen2, Qwen2.5
extern const DecoderFamily kQwen3;     ///< Qwen3, dense
extern const DecoderFamily kSmolLm3;   ///< SmolLM3: every fourth layer without positions
extern const DecoderFamily kErnie45;   ///< ERNIE 4.5, dense
extern const DecoderFamily kSeedOss;   ///< Seed-OSS
extern const DecoderFamily kPhi3;      ///< Phi-3, 3.5, 4: fused projections
extern const DecoderFamily kQwen3Moe;  ///< Qwen3-30B-A3B, 235B-A22B, Coder
extern const DecoderFamily kMixtral;   ///< Mixtral 8x7B, 8x22B
extern const DecoderFamily kGemma2;    ///< Gemma 2
extern const DecoderFamily kGemma3;    ///< Gemma 3, text part
extern const DecoderFamily kGlm4;      ///< GLM-4-0414, GLM-Z1
extern const DecoderFamily kGlm4Moe;   ///< GLM-4.5, 4.5-Air, 4.6, 4.7
extern const DecoderFamily kGptOss;    ///< gpt-oss-20b, 120b

}  // namespace pergola
