"""The table of reference models: every family, and every switch of a family at least once.

A case is a tiny Hugging Face configuration and how its config.json is spelled:
  rope_parameters  as transformers 5 writes it
  rope_scaling     as transformers 4 wrote it (top-level rope_theta and rope_scaling, torch_dtype)
Sizes are small and odd on purpose: no two sizes of a model are equal, so that a transposed or
swapped tensor cannot pass, and head_dim * heads differs from hidden_size wherever a family
allows it.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    family: str
    config: dict
    spelling: str
    # Keys added to or replaced in config.json that must not change the model.
    extra_json: dict = dataclasses.field(default_factory=dict)
    drop_json: tuple = ()
    document_lengths: tuple = (19, 1, 14, 9)
    steps: int = 1


def _default_rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def _llama3_rope(theta, factor, original):
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }


CASES = [
    Case("llama2", "llama", dict(
        vocab_size=44, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=3, max_position_embeddings=64,
        rms_norm_eps=1e-5, rope_parameters=_default_rope(10000.0)),
        "rope_scaling", steps=2),
    # Wavelengths 6 to 354 around the bounds 16 and 64: kept, blended and divided frequencies.
    Case("llama3", "llama", dict(
        vocab_size=48, hidden_size=32, intermediate_size=36, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
        rms_norm_eps=1e-5, rope_parameters=_llama3_rope(100.0, 4.0, 64)),
        "rope_scaling"),
    Case("llama3_rope_parameters", "llama", dict(
        vocab_size=40, hidden_size=20, intermediate_size=44, num_hidden_layers=3,
        num_attention_heads=2, num_key_value_heads=1, head_dim=12, max_position_embeddings=320,
        rms_norm_eps=1e-3, rope_parameters=_llama3_rope(500.0, 8.0, 40)),
        "rope_parameters"),
    Case("llama_linear", "llama", dict(
        vocab_size=44, hidden_size=16, intermediate_size=28, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.5}),
        "rope_scaling"),
    Case("llama_linear_rope_parameters", "llama", dict(
        vocab_size=40, hidden_size=16, intermediate_size=20, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=6, max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "linear", "rope_theta": 2000.0, "factor": 4.0}),
        "rope_parameters"),
    Case("llama_biases", "llama", dict(
        vocab_size=42, hidden_size=20, intermediate_size=36, num_hidden_layers=2,
        num_attention_heads=5, num_key_value_heads=1, head_dim=8, max_position_embeddings=64,
        rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True,
        rope_parameters=_default_rope(10000.0)),
        "rope_parameters"),
    Case("smollm2", "llama", dict(
        vocab_size=52, hidden_size=24, intermediate_size=40, num_hidden_layers=3,
        num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=64,
        rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=_default_rope(100000.0)),
        "rope_scaling", steps=2),
    Case("mistral_window", "mistral", dict(
        vocab_size=40, hidden_size=24, intermediate_size=44, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=10, max_position_embeddings=64,
        rms_norm_eps=1e-5, sliding_window=5, rope_parameters=_default_rope(10000.0)),
        "rope_parameters"),
    Case("mistral_full", "mistral", dict(
        vocab_size=36, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=12, max_position_embeddings=64,
        rms_norm_eps=1e-5, sliding_window=None, rope_parameters=_default_rope(1000000.0)),
        "rope_scaling"),
    # Layer 0 sees everything, layers 1 and 2 six tokens.
    Case("qwen2_window", "qwen2", dict(
        vocab_size=44, hidden_size=24, intermediate_size=32, num_hidden_layers=3,
        num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=64,
        rms_norm_eps=1e-6, use_sliding_window=True, sliding_window=6, max_window_layers=1,
        rope_parameters=_default_rope(10000.0)),
        "rope_scaling", drop_json=("layer_types",)),
    # A window that the switch turns off, as the published Qwen2.5 configurations have it.
    Case("qwen2_tied", "qwen2", dict(
        vocab_size=48, hidden_size=16, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        rms_norm_eps=1e-6, tie_word_embeddings=True, use_sliding_window=False,
        rope_parameters=_default_rope(1000000.0)),
        "rope_scaling", drop_json=("layer_types",),
        extra_json={"use_sliding_window": False, "sliding_window": 4, "max_window_layers": 0}),
    Case("qwen3_tied", "qwen3", dict(
        vocab_size=48, hidden_size=24, intermediate_size=36, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=64,
        rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=_default_rope(1000000.0)),
        "rope_scaling", drop_json=("layer_types",)),
    Case("qwen3_bias_window", "qwen3", dict(
        vocab_size=40, hidden_size=20, intermediate_size=28, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=1, head_dim=8, max_position_embeddings=64,
        rms_norm_eps=1e-3, attention_bias=True, use_sliding_window=True, sliding_window=4,
        max_window_layers=2, rope_parameters=_default_rope(10000.0)),
        "rope_parameters", document_lengths=(1, 16, 4, 22)),
]
