"""Whether a checkpoint was saved with the config that a run is to go on with."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import PurePath
from typing import Any

__all__ = ["ConfigMismatch", "check_config", "plain_config"]

_ABSENT = "(absent)"


class ConfigMismatch(ValueError):
    """Fields of a config differ from the saved ones; ``fields`` are their names."""

    def __init__(self, differing: Mapping[str, tuple[Any, Any]]) -> None:
        self.fields = tuple(differing)
        lines = [
            f"  {name}: {_show(saved)} in the checkpoint, {_show(current)} now"
            for name, (saved, current) in differing.items()
        ]
        super().__init__(
            "The checkpoint was saved with another config:\n"
            + "\n".join(lines)
            + "\nKeep what it was saved with, or start a new run."
        )


def check_config(
    saved: object, current: object, may_differ: Collection[str] = ()
) -> None:
    """Compare two configs field by field; ConfigMismatch names those that differ.

    Weights tell their shapes alone: another ``num_heads`` or ``rope_theta`` would
    load without a word, and compute something else.

    Nested fields have dotted names. A name in ``may_differ`` allows for a field and
    for all that is nested in it.
    """
    saved, current = _flatten(plain_config(saved)), _flatten(plain_config(current))
    differing = {}
    for name in dict.fromkeys([*saved, *current]):
        values = (saved.get(name, _ABSENT), current.get(name, _ABSENT))
        if values[0] != values[1] and not _is_within(name, may_differ):
            differing[name] = values
    if differing:
        raise ConfigMismatch(differing)


def plain_config(config: object) -> Any:
    """A config, such as a dataclass, as the values that JSON gives back.

    Raises TypeError for a value that JSON cannot hold.
    """
    if is_dataclass(config) and not isinstance(config, type):
        config = asdict(config)
    if isinstance(config, Mapping):
        return {str(key): plain_config(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [plain_config(value) for value in config]
    if isinstance(config, PurePath):
        return str(config)
    if config is None or isinstance(config, str | bool | int | float):
        return config
    raise TypeError(
        f"A config holds numbers, strings, lists and mappings, not {config!r}."
    )


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {prefix: value} if prefix else {}
    flat = {}
    for key, nested in value.items():
        flat |= _flatten(nested, f"{prefix}.{key}" if prefix else key)
    return flat


def _is_within(name: str, parents: Collection[str]) -> bool:
    return any(name == p or name.startswith(f"{p}.") for p in parents)


def _show(value: object) -> str:
    return value if value is _ABSENT else repr(value)
