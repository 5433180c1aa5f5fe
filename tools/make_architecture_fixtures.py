#!/usr/bin/env python3
"""Writes tests/data/architectures: tiny random checkpoints with the logits of Hugging Face transformers.

Needs torch and transformers (any CPU build): python3 -m venv v && v/bin/pip install torch transformers
    v/bin/python tools/make_architecture_fixtures.py [NAME ...]     # without names: all

Every parameter and buffer of a checkpoint is random (norms, biases, sinks and correction biases too), rounded to
bfloat16, and stored so; logits come from a run in fp32 on the CPU with the plain ("eager") attention. Windows are
shorter than the sequence, heads are not hidden / heads wide, and widths are no multiples of 128. Tests read
config.json, model.safetensors and expected.safetensors (input_ids [tokens], logits [positions, vocab] of the last
positions); they need no Python.
"""
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "architectures"
TOKENS = 48

# Sizes that all families share unless they say otherwise.
BASE = dict(vocab_size=160, hidden_size=80, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=24, max_position_embeddings=512, tie_word_embeddings=False,
            bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)


def yarn(**more):
    return dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0,
                beta_slow=1.0, **more)


# name: (class of the configuration, its values, class of the model if not the configuration's own causal one)
FIXTURES = {
    "llama": ("LlamaConfig", dict(rope_parameters=LLAMA3_ROPE)),
    # SmolLM's proportions: 9 heads on 3, padded hidden and kv widths, tied head.
    "llama-tied": ("LlamaConfig", dict(hidden_size=72, num_attention_heads=9, num_key_value_heads=3, head_dim=8,
                                       attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "mistral": ("MistralConfig", dict(sliding_window=9)),
    "ministral": ("Ministral3Config", dict(rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0,
                                                                llama_4_scaling_beta=0.1))),
    "qwen2": ("Qwen2Config", dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=11,
                                  max_window_layers=1)),
    "qwen3": ("Qwen3Config", dict()),
    "smollm3": ("SmolLM3Config", dict(num_hidden_layers=4)),
    "ernie4-5": ("Ernie4_5Config", dict(use_bias=True)),
    "seed-oss": ("SeedOssConfig", dict(attention_bias=True, attention_out_bias=False)),
    "phi3": ("Phi3Config", dict(partial_rotary_factor=0.5, sliding_window=13)),
    "phi3-longrope": ("Phi3Config", dict(
        head_dim=None,  # its check of the factors counts on hidden / heads
        original_max_position_embeddings=64,
        rope_parameters=dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0 + 0.05 * i for i in range(10)],
                             long_factor=[2.0 + 0.5 * i for i in range(10)]))),
    "qwen3-moe": ("Qwen3MoeConfig", dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=40,
                                         norm_topk_prob=True, mlp_only_layers=[1], num_hidden_layers=3)),
    "mixtral": ("MixtralConfig", dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=56)),
    "qwen3-next": ("Qwen3NextConfig", dict(
        layer_types=["linear_attention", "full_attention"], num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=40, shared_expert_intermediate_size=48, linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=128, linear_value_head_dim=64,  # parts of whole blocks of 128, as EXL3 needs them
        head_dim=32, norm_topk_prob=True)),
    "gemma2": ("Gemma2Config", dict(num_hidden_layers=3, sliding_window=10, query_pre_attn_scalar=20,
                                    attn_logit_softcapping=1.5, final_logit_softcapping=40.0,
                                    tie_word_embeddings=True)),
    "gemma3": ("Gemma3TextConfig", dict(num_hidden_layers=4, sliding_window=10, query_pre_attn_scalar=20,
                                        sliding_window_pattern=3, tie_word_embeddings=True,
                                        rope_parameters=dict(
                                            sliding_attention=dict(rope_type="default", rope_theta=1e4),
                                            full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6))),
               "Gemma3ForCausalLM"),
    "glm4": ("Glm4Config", dict(attention_bias=True)),
    "glm4-moe": ("Glm4MoeConfig", dict(
        num_hidden_layers=3, attention_bias=True, use_qk_norm=True, n_routed_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=40, n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=1.7, n_group=4,
        topk_group=2, norm_topk_prob=True)),
    "gpt-oss": ("GptOssConfig", dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=56,
                                     num_hidden_layers=3, sliding_window=10,
                                     rope_parameters=yarn(truncate=False))),
    # As published: experts in MXFP4, whose blocks want widths that 32 divides.
    "gpt-oss-mxfp4": ("GptOssConfig", dict(hidden_size=96, num_local_experts=3, num_experts_per_tok=2,
                                           intermediate_size=64, sliding_window=10,
                                           rope_parameters=yarn(truncate=False))),
}

# The same at 8k tokens: windows that are passed many times, scaled positions far beyond the original context.
LONG = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_attention_heads=2, num_key_value_heads=1,
            head_dim=32, max_position_embeddings=16384)
LONG_TOKENS = 8192
LONG_KEPT = 48
FIXTURES |= {
    "long-llama3": ("LlamaConfig", dict(LONG, rope_parameters=dict(LLAMA3_ROPE, original_max_position_embeddings=1024))),
    "long-ministral": ("Ministral3Config", dict(LONG, rope_parameters=dict(
        yarn(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1), rope_theta=1e6, factor=8.0,
        original_max_position_embeddings=1024))),
    "long-gemma3": ("Gemma3TextConfig", dict(
        LONG, sliding_window=512, query_pre_attn_scalar=20, sliding_window_pattern=2,
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=1e4),
                             full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6))),
                    "Gemma3ForCausalLM"),
    "long-gpt-oss": ("GptOssConfig", dict(
        LONG, num_local_experts=3, num_experts_per_tok=2, intermediate_size=40, sliding_window=128,
        rope_parameters=dict(yarn(truncate=False), rope_theta=150000.0, factor=32.0,
                             original_max_position_embeddings=1024))),
}


def randomise(model):
    """Every parameter and persistent buffer from a distribution that keeps activations near 1 and matters."""
    generator = torch.Generator().manual_seed(7)
    names = set(model.state_dict())
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if name not in names:
            continue  # rotary tables and the like
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
        if name.endswith("A_log"):
            value = torch.rand(tensor.shape, generator=generator) * 2 - 1
        elif "norm" in name.split(".")[-2] and not name.endswith("bias"):
            value = tensor.detach().float().mean() + 0.3 * noise  # about 1, or about 0 where the norm adds 1
        elif tensor.dim() <= 1:
            value = 0.3 * noise
        else:
            fan_in = tensor.shape[-2] if "experts" in name and model.config.model_type == "gpt_oss" else tensor.shape[-1]
            gain = 1.0 if "embed" in name else 3.0 if "lm_head" in name else 1.3
            value = noise * gain / (1.0 if "embed" in name else fan_in**0.5)
        tensor.data = value.to(torch.bfloat16).float().to(tensor.dtype)


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def to_mxfp4(weight):
    """[experts, in, out] as (blocks [experts, out, in / 32, 16], scales [experts, out, in / 32], what they stand for)."""
    groups = weight.transpose(1, 2).unflatten(2, (-1, 32))
    exponent = torch.floor(torch.log2(groups.abs().amax(-1))) - 2
    scaled = groups / torch.exp2(exponent)[..., None]
    number = (scaled.abs()[..., None] - E2M1).abs().argmin(-1)
    value = torch.sign(scaled) * E2M1[number] * torch.exp2(exponent)[..., None]
    nibble = (number + 8 * (scaled < 0)).to(torch.uint8)
    blocks = nibble[..., 0::2] | nibble[..., 1::2] << 4
    return blocks, (exponent + 127).to(torch.uint8), value.flatten(2).transpose(1, 2).contiguous()


def pack_experts(model):
    """Rounds the experts to MXFP4; their packed tensors by name."""
    packed = {}
    for name, tensor in model.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            packed[name + "_blocks"], packed[name + "_scales"], tensor.data = to_mxfp4(tensor.data)
    return packed


def write(name, folder, tokens, keep):
    config_class, values, *model_class = FIXTURES[name]
    values = {key: value for key, value in {**BASE, **values}.items() if key != "head_dim" or value is not None}
    config = getattr(transformers, config_class)(**values)
    config._attn_implementation = "eager"
    class_name = model_class[0] if model_class else config_class.replace("Config", "ForCausalLM")
    torch.manual_seed(1)
    model = getattr(transformers, class_name)(config).eval().float()
    randomise(model)
    packed = pack_experts(model) if name.endswith("mxfp4") else {}
    if folder.exists():
        shutil.rmtree(folder)
    model.save_pretrained(folder)
    ids = torch.randint(0, config.vocab_size, (1, tokens), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, -keep:].float().contiguous()
    stored = load_file(folder / "model.safetensors")
    dense = {key: value if "A_log" in key else value.to(torch.bfloat16) for key, value in stored.items()
             if key + "_blocks" not in packed}
    save_file({**dense, **{key: value.contiguous() for key, value in packed.items()}},
              folder / "model.safetensors", metadata={"format": "pt"})
    save_file({"input_ids": ids[0].int(), "logits": logits}, folder / "expected.safetensors")
    written = json.loads((folder / "config.json").read_text())
    if packed:
        written["quantization_config"] = {"quant_method": "mxfp4"}
        (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {written['architectures'][0]}, {size / 1024:.0f} KiB, logits up to {logits.abs().max():.2f}")


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FIXTURES:
        if name.startswith("long-"):
            write(name, ROOT / name, LONG_TOKENS, LONG_KEPT)
        else:
            write(name, ROOT / name, TOKENS, TOKENS)


if __name__ == "__main__":
    main()
