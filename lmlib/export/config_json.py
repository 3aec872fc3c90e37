"""A ``ModelConfig`` as the ``config.json`` of ``transformers``, and back."""

from collections.abc import Mapping
from typing import Any

from lmlib.config import ModelConfig
from lmlib.export.layouts import LAYOUTS, Layout, layout_of

__all__ = ["from_transformers_config", "to_transformers_config"]

_PART = "partial_rotary_factor"


def to_transformers_config(config: ModelConfig) -> dict[str, Any]:
    """What a ``config.json`` has to say for ``transformers`` to compute the same.

    Every field is there, in the words that old versions and new ones read. A Llama
    of ``transformers`` has dropout in its attention alone, which counts only where
    it is trained further.

    Raises ValueError for a config that is neither a GPT-2 nor a Llama.
    """
    layout = layout_of(config)
    content = {
        "architectures": [layout.architecture],
        "model_type": layout.model_type,
    }
    for ours, names in layout.fields.items():
        content |= dict.fromkeys(names, getattr(config, ours))
    return content | {name: first for name, (first, *_) in layout.constants.items()}


def from_transformers_config(content: Mapping[str, Any]) -> ModelConfig:
    """The config of the model that a ``config.json`` describes.

    What it leaves out is as ``transformers`` has it by default; the sizes must be
    there.

    Raises ValueError, which names the field, for another architecture, for what
    would be computed otherwise than in ``lmlib.model``, such as scaled positions or
    heads of a size of their own, and for values that no ``ModelConfig`` takes.
    """
    layout = _read_layout(content)
    _check_constants(content, layout)
    content = _with_rope_theta(content)
    fields = {
        ours: _read_field(content, layout, ours, names)
        for ours, names in layout.fields.items()
    }
    config = ModelConfig(**(layout.switches | fields))
    _check_head_size(content, config)
    return config


def _read_layout(content: Mapping[str, Any]) -> Layout:
    model_type = content.get("model_type")
    for layout in LAYOUTS:
        if layout.model_type == model_type:
            return layout
    known = " or ".join(repr(layout.model_type) for layout in LAYOUTS)
    raise ValueError(
        f"model_type is {model_type!r}: only models of type {known} can be read."
    )


def _check_constants(content: Mapping[str, Any], layout: Layout) -> None:
    for name, values in layout.constants.items():
        value = content.get(name, values[0])
        if value not in values:
            wanted = " or ".join(map(repr, values))
            raise ValueError(
                f"{name} is {value!r}: only a model with {wanted} can be read."
            )
    if content.get("quantization_config") is not None:
        raise ValueError(
            "quantization_config is set: save the model before it is quantized."
        )


def _with_rope_theta(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Find ``rope_theta`` where version 5 has it; refuse angles that are scaled."""
    field = "rope_scaling" if content.get("rope_scaling") else "rope_parameters"
    rope = content.get(field) or {}
    if not isinstance(rope, Mapping):
        raise ValueError(f"{field} is {rope!r}: it should be an object or null.")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(
            f"{field} is of type {kind!r}: only angles that follow from rope_theta "
            "alone ('default') can be read."
        )
    part = rope.get(_PART, content.get(_PART, 1))
    if part not in (None, 1):
        raise ValueError(
            f"{_PART} is {part!r}: only heads that turn as a whole (1) can be read."
        )
    theta = rope.get("rope_theta")
    return content if theta is None else {**content, "rope_theta": theta}


def _read_field(
    content: Mapping[str, Any], layout: Layout, ours: str, names: tuple[str, ...]
) -> Any:
    values = {name: _value(content, layout, name) for name in names}
    (first, value), *others = values.items()
    for other, its in others:
        if its != value:
            raise ValueError(
                f"{first} is {value!r} and {other} is {its!r}: only a model where "
                f"they are equal, which is our {ours}, can be read."
            )
    return value


def _value(content: Mapping[str, Any], layout: Layout, name: str) -> Any:
    if name in content:
        return content[name]
    if name in layout.defaults:
        return layout.defaults[name]
    raise ValueError(f"{name} is missing: add it.")


def _check_head_size(content: Mapping[str, Any], config: ModelConfig) -> None:
    head_dim = content.get("head_dim")
    if head_dim not in (None, config.head_size):
        raise ValueError(
            f"head_dim is {head_dim!r}: only heads of hidden_size / "
            f"num_attention_heads = {config.head_size} elements can be read."
        )
