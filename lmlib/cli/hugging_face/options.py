"""What both commands take."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lmlib.cli.files import Json, Quiet, check_can_be_made

__all__ = ["ADVICE", "FolderOptions"]

ADVICE = (
    "the weights that are read and those that are written must fit into it. Choose "
    "a smaller model."
)


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """Options of a command that writes a model into a folder.

    Raises OSError if there is something in ``out``, or if it cannot be made, before
    time is spent.
    """

    out: Path
    """The folder to write, which appears once it is whole."""
    dtype: Literal["fp32", "bf16", "fp16"] | None = None
    """What to store the weights in: as they are, if left out."""
    json: Json = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        """Check what would be noticed only after loading."""
        from lmlib.export.files import check_free

        check_free(self.out)
        check_can_be_made(self.out)
