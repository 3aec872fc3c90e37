"""What torch and safetensors make of an error of the disk: an OSError again."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

__all__ = ["errors_of_the_disk"]

# "(os error 28)" in safetensors, "Cannot allocate memory (12)" in torch
_NUMBER = re.compile(r"\((?:os error )?(\d+)\)$", re.MULTILINE)


@contextmanager
def errors_of_the_disk(path: Path) -> Iterator[None]:
    """Raise an OSError where a library raises its own because of one."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        if isinstance(error.__context__, OSError):
            number = error.__context__.errno
        elif match := _NUMBER.search(str(error)):
            number = int(match[1])
        else:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
