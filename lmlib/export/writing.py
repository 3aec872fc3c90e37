"""A model and its tokenizer as a folder that ``transformers`` opens."""

import json
import os
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from lmlib.bpe import Tokenizer
from lmlib.checkpoint.folders import atomic_folder
from lmlib.config import ModelConfig
from lmlib.data.prepare import END_OF_TEXT
from lmlib.export.config_json import to_transformers_config
from lmlib.export.files import (
    CONFIG,
    DTYPES,
    GENERATION,
    TOKENIZER,
    TOKENIZER_CONFIG,
    WEIGHTS,
    check_dtype,
    check_free,
    check_vocabulary,
)
from lmlib.export.weights import to_transformers_state_dict
from lmlib.files import write_atomically
from lmlib.model import TransformerLM

__all__ = ["save_hugging_face"]


def save_hugging_face(
    folder: str | os.PathLike,
    model: TransformerLM,
    tokenizer: Tokenizer | None = None,
    *,
    dtype: torch.dtype | None = None,
    end_of_text: str | None = END_OF_TEXT,
) -> None:
    """Write a model, and its tokenizer, as a folder that ``transformers`` opens.

    ``AutoModelForCausalLM.from_pretrained(folder)`` then gives our logits, and
    ``AutoTokenizer`` our ids, as with ``allowed_special="all"``. Weights are stored
    in ``dtype``: fp32, bf16 or fp16; if None, in the widest that the model has.
    ``end_of_text`` is the special token that ends what is generated, and begins
    what is generated from nothing. The default is left out where the tokenizer does
    not have it; None leaves it out always.

    The folder appears when it is whole.

    Raises ValueError for a model that is neither a GPT-2 nor a Llama, for weights
    beyond the range of ``dtype``, for a tokenizer with more ids than the model or
    without ``end_of_text``, or one that Hugging Face's library would read
    otherwise; and OSError if there is something in the folder, or if it cannot be
    written.
    """
    folder, state = Path(folder), model.state_dict()
    check_free(folder)
    check_vocabulary(model.config, tokenizer)
    dtype = _widest(state) if dtype is None else dtype
    check_dtype(dtype)
    descriptions = _descriptions(model.config, dtype, tokenizer, end_of_text)
    weights = to_transformers_state_dict(model.config, _cast(state, dtype))
    with atomic_folder(folder) as temporary:
        for name, content in descriptions.items():
            text = json.dumps(content, indent=2, ensure_ascii=False)
            write_atomically(temporary / name, f"{text}\n")
        if tokenizer:
            tokenizer.save(temporary / TOKENIZER)
        _write_weights(temporary / WEIGHTS, weights)
        # safetensors would let nobody but the owner read it
        (temporary / WEIGHTS).chmod((temporary / CONFIG).stat().st_mode)


# --- what is said about a model ---------------------------------------------------


def _descriptions(
    config: ModelConfig,
    dtype: torch.dtype,
    tokenizer: Tokenizer | None,
    end_of_text: str | None,
) -> dict[str, dict[str, Any]]:
    """The JSON files of a folder, by name, but for the tokenizer itself."""
    end = _known_end(tokenizer, end_of_text)
    end_id = tokenizer.special_tokens[end] if end else None
    ends = {"bos_token_id": end_id, "eos_token_id": end_id}
    stored = {"torch_dtype": str(dtype).removeprefix("torch.")}
    # Not in CONFIG, where it would keep its row of the embedding from training.
    padding = {"pad_token_id": end_id}
    files = {
        CONFIG: to_transformers_config(config) | stored | ends,
        GENERATION: ends | padding,
    }
    if tokenizer:
        files[TOKENIZER_CONFIG] = {
            # The one that takes tokenizer.json as it is, and adds nothing to it.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.context_length,
            "bos_token": end,
            "eos_token": end,
            "clean_up_tokenization_spaces": False,
        }
    return files


def _known_end(tokenizer: Tokenizer | None, name: str | None) -> str | None:
    """The special token that ends a text; the default is left out if not known."""
    known = tokenizer.special_tokens if tokenizer else {}
    if name in known or name is None:
        return name
    if name == END_OF_TEXT:
        return None
    raise ValueError(
        f"The tokenizer has no special token {name!r} to end a text with: there is "
        f"{', '.join(map(repr, known)) or 'none'}."
    )


# --- weights ----------------------------------------------------------------------


def _widest(state: Mapping[str, Tensor]) -> torch.dtype:
    return reduce(torch.promote_types, (weight.dtype for weight in state.values()))


def _cast(state: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights in another dtype, on the CPU; ValueError if it has no room."""
    weights = {}
    for name, weight in state.items():
        weights[name] = weight.to("cpu", dtype)
        if weights[name].isinf().any() and not weight.isinf().any():
            raise ValueError(
                f"{name!r} goes up to {weight.abs().max():.3g}, and "
                f"{DTYPES[dtype]} to {torch.finfo(dtype).max:.3g}: choose bf16, "
                "which has the range of fp32."
            )
    return weights


def _write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    whole = {name: weight.contiguous() for name, weight in weights.items()}
    try:
        # What transformers asks for; two entries would have no fixed order.
        save_file(whole, path, metadata={"format": "pt"})
    except SafetensorError as error:  # what it makes of a full disk
        raise OSError(f"{path.name} cannot be written: {error}") from error
