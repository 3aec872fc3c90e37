"""Everything that a run writes down on its way, of which rank 0 alone has files."""

from collections.abc import Mapping
from typing import Any

from lmlib.files import write_atomically
from lmlib.train.metrics import MetricsFile, TensorBoardLog, read_metrics
from lmlib.train.run_folder import RunFolder

__all__ = ["Logs"]


class Logs:
    """Metrics as JSONL and, if wanted, for TensorBoard; samples as text.

    What was written of steps after ``last_step`` is taken back. Other ranks than 0
    write nothing.
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
            sink.write(record)

    def write_sample(self, step: int, text: str) -> None:
        """Write down a text that the model has written after ``step`` steps."""
        self.write({"step": step, "sample": text})
        if self._sinks:
            self._write_samples()

    def sync(self) -> None:
        """Return once all of it is on disk."""
        for sink in self._sinks:
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
