"""The two architectures of ``transformers`` that a ``ModelConfig`` can describe."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from lmlib.config import ModelConfig

__all__ = ["GPT2", "LAYOUTS", "LLAMA", "Layout", "layout_of"]


@dataclass(frozen=True)
class Layout:
    """What an architecture of ``transformers`` is made of, in our terms and theirs.

    ``switches`` are the fields of ``ModelConfig`` that are always so there, and
    ``fields`` our name of each other one with their names in ``config.json``. What
    may be left out there has a value in ``defaults``. ``constants`` change what is
    computed, and we compute with these values alone; the first is written.
    ``modules`` are our names of what has weights, and theirs.
    """

    title: str
    model_type: str
    architecture: str
    switches: Mapping[str, Any]
    fields: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, Any]
    constants: Mapping[str, tuple[Any, ...]]
    prefix: str  # of all weights but the head's
    modules: Mapping[str, str]
    linear_weights_are_transposed: bool = False

    def differences(self, config: ModelConfig) -> dict[str, Any]:
        """The fields that would have to change, with the value that they need."""
        needed = dict(self.switches)
        if "num_kv_heads" not in self.fields:
            needed["num_kv_heads"] = config.num_heads
        return {k: v for k, v in needed.items() if getattr(config, k) != v}


GPT2 = Layout(
    title="GPT-2",
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    switches=MappingProxyType(
        {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True}
    ),
    fields=MappingProxyType(
        {
            "vocab_size": ("vocab_size",),
            "context_length": ("n_positions",),
            "d_model": ("n_embd",),
            "num_layers": ("n_layer",),
            "num_heads": ("n_head",),
            "d_ff": ("n_inner",),
            "tie_embeddings": ("tie_word_embeddings",),
            "dropout": ("embd_pdrop", "attn_pdrop", "resid_pdrop"),
            "norm_eps": ("layer_norm_epsilon",),
        }
    ),
    defaults=MappingProxyType(
        {
            "n_inner": None,  # 4·n_embd, as ours
            "tie_word_embeddings": True,
            "embd_pdrop": 0.1,
            "attn_pdrop": 0.1,
            "resid_pdrop": 0.1,
            "layer_norm_epsilon": 1e-5,
        }
    ),
    constants=MappingProxyType(
        {
            # Both are the approximation by tanh; "gelu" is not.
            "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False,),
        }
    ),
    prefix="transformer.",
    modules=MappingProxyType(
        {
            "token_embedding": "transformer.wte",
            "position_embedding": "transformer.wpe",
            "blocks": "transformer.h",
            "attention_norm": "ln_1",
            # One matrix for all three, side by side in this order.
            "attention.query": "attn.c_attn",
            "attention.key": "attn.c_attn",
            "attention.value": "attn.c_attn",
            "attention.output": "attn.c_proj",
            "mlp_norm": "ln_2",
            "mlp.up": "mlp.c_fc",
            "mlp.down": "mlp.c_proj",
            "final_norm": "transformer.ln_f",
            "head": "lm_head",
        }
    ),
    linear_weights_are_transposed=True,
)

LLAMA = Layout(
    title="Llama",
    model_type="llama",
    architecture="LlamaForCausalLM",
    switches=MappingProxyType(
        {"norm": "rmsnorm", "mlp": "swiglu", "position": "rope"}
    ),
    fields=MappingProxyType(
        {
            "vocab_size": ("vocab_size",),
            "context_length": ("max_position_embeddings",),
            "d_model": ("hidden_size",),
            "num_layers": ("num_hidden_layers",),
            "num_heads": ("num_attention_heads",),
            "num_kv_heads": ("num_key_value_heads",),
            "d_ff": ("intermediate_size",),
            "bias": ("attention_bias", "mlp_bias"),
            "tie_embeddings": ("tie_word_embeddings",),
            "dropout": ("attention_dropout",),  # the only one that they have
            "rope_theta": ("rope_theta",),
            "norm_eps": ("rms_norm_eps",),
        }
    ),
    defaults=MappingProxyType(
        {
            "num_key_value_heads": None,  # num_attention_heads, as ours
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "attention_dropout": 0.0,
            "rope_theta": 10_000.0,
            "rms_norm_eps": 1e-6,
        }
    ),
    constants=MappingProxyType({"hidden_act": ("silu", "swish")}),
    prefix="model.",
    modules=MappingProxyType(
        {
            "token_embedding": "model.embed_tokens",
            "blocks": "model.layers",
            "attention_norm": "input_layernorm",
            "attention.query": "self_attn.q_proj",
            "attention.key": "self_attn.k_proj",
            "attention.value": "self_attn.v_proj",
            "attention.output": "self_attn.o_proj",
            "mlp_norm": "post_attention_layernorm",
            "mlp.gate": "mlp.gate_proj",
            "mlp.up": "mlp.up_proj",
            "mlp.down": "mlp.down_proj",
            "final_norm": "model.norm",
            "head": "lm_head",
        }
    ),
)

LAYOUTS = (GPT2, LLAMA)


def layout_of(config: ModelConfig) -> Layout:
    """The layout that can say all of a config.

    Raises ValueError, which names the fields in the way, if neither can.
    """
    wishes = []
    for layout in LAYOUTS:
        differences = layout.differences(config)
        if not differences:
            return layout
        fields = ", ".join(f"{k}={v!r}" for k, v in differences.items())
        wishes.append(f"a {layout.title} has {fields}")
    raise ValueError(
        f"The config is neither a GPT-2 nor a Llama: {' and '.join(wishes)}. Only "
        "these two have a layout in transformers."
    )
