"""What both commands say of the model that they wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlib.cli.files import print_json

if TYPE_CHECKING:
    import torch

    from lmlib.bpe import Tokenizer
    from lmlib.cli.hugging_face.options import FolderOptions
    from lmlib.config import ModelConfig

__all__ = ["model_facts", "report", "torch_dtype"]


def torch_dtype(name: str | None) -> torch.dtype | None:
    """Return what torch calls it."""
    from lmlib.export.files import DTYPES

    return {short: dtype for dtype, short in DTYPES.items()}.get(name)


def model_facts(
    config: ModelConfig,
    tokenizer: Tokenizer | None,
    no_tokenizer: str | None,
    out: Path,
) -> dict[str, Any]:
    """Return what there is to say of a model that was written to a folder."""
    from lmlib.export.layouts import layout_of

    files = [path for path in out.rglob("*") if path.is_file()]
    return {
        "architecture": layout_of(config).architecture,
        "parameters": config.num_parameters,
        "bytes": sum(path.stat().st_size for path in files),
        "vocab_size": config.vocab_size,
        "tokenizer_size": None if tokenizer is None else tokenizer.vocab_size,
        "no_tokenizer": None if tokenizer else no_tokenizer,
        "out": str(out),
    }


def report(
    options: FolderOptions,
    read: Mapping[str, Any],
    line: str,
    facts: dict[str, Any],
) -> None:
    """Print what was read, in a line for people, and what was written."""
    if options.json:
        print_json({**read, **facts})
    elif not options.quiet:
        print(f"read        {line}")
        _print_model(facts)


def _print_model(facts: dict[str, Any]) -> None:
    print(f"model       {facts['architecture']}")
    print(f"            {facts['parameters']:,} parameters")
    print(f"            {facts['bytes']:,} bytes")
    print(f"vocabulary  {facts['vocab_size']:,} ids")
    known = facts["tokenizer_size"]
    if known is None:
        print(f"tokenizer   none: {facts['no_tokenizer']}")
    else:
        print(f"tokenizer   {known:,} ids")
    print(f"written to  {facts['out']}")
