"""Everything that a run writes down on its way, of which rank 0 alone has files."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lmlib.files import write_atomically
from lmlib.train.metrics import MetricsFile, TensorBoardLog, read_metrics
from lmlib.train.run_folder import RunFolder

__all__ = ["LogWarning", "Logs"]


class LogWarning(UserWarning):
    """Metrics or samples could not be written."""


class Logs:
    """Metrics as JSONL and, if wanted, for TensorBoard; samples as text.

    What was written of steps after ``last_step`` is taken back. Other ranks than 0
    write nothing. A disk that is full does not end a run: it is a ``LogWarning``.
    """

    def __init__(
        self, folder: RunFolder, *, last_step: int, tensorboard: bool, is_main: bool
    ) -> None:
        self._folder = folder
        self._sinks: list[MetricsFile | TensorBoardLog] = []
        if is_main:
            self._sinks.append(MetricsFile(folder.metrics, last_step))
            self._write_samples()
        if is_main and tensorboard:
            self._sinks.append(TensorBoardLog(folder.tensorboard, last_step))

    def write(self, record: Mapping[str, Any]) -> None:
        """Write down numbers, among them their ``"step"``."""
        for sink in self._sinks:
            with _going_on():
                sink.write(record)

    def write_sample(self, step: int, text: str) -> None:
        """Write down a text that the model has written after ``step`` steps."""
        self.write({"step": step, "sample": text})
        if self._sinks:
            with _going_on():
                self._write_samples()

    def sync(self) -> None:
        """Return once all of it is on disk."""
        for sink in self._sinks:
            with _going_on():
                sink.sync()

    def close(self) -> None:
        """Close all files."""
        for sink in self._sinks:
            sink.close()

    def _write_samples(self) -> None:
        """Write the samples of the metrics for people."""
        records = read_metrics(self._folder.metrics)
        texts = [
            f"=== after {record['step']} steps ===\n{record['sample']}\n"
            for record in records
            if "sample" in record
        ]
        write_atomically(self._folder.samples, "\n".join(texts))


@contextmanager
def _going_on() -> Iterator[None]:
    """Warn of an error of the disk: what was trained is worth more than a line."""
    try:
        yield
    except OSError as error:
        # in the same words each time: Python shows a warning once
        warnings.warn(
            f"METRICS or samples could not be written: {error}. The run goes on, "
            "and metrics wait in memory. Make room there.",
            LogWarning,
            stacklevel=4,
        )
