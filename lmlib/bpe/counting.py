"""Counting pre-tokens: of texts, and of files of any size in several processes."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing.connection import Connection, wait

from lmlib.bpe.byte_ranges import ByteRange, share_files
from lmlib.bpe.cuts import Cutter
from lmlib.bpe.fast.classes import DOCUMENT_END
from lmlib.bpe.fast.counting import WordCounter, WordCounts
from lmlib.bpe.pretokens import KNOWN_PATTERNS, Pretokenizer
from lmlib.bpe.special_tokens import special_token_finder
from lmlib.bpe.text_files import OnBytes, is_regular_file, read_text
from lmlib.parallel import Worker

__all__ = ["BlockCounter", "PretokenCounter", "count_files", "make_counter"]

_PART = (
    2**19
)  # characters: of half and of double the size, 50 MB take 1.1 times as long
_MANY = 2**20  # different pieces, after which their pre-tokens are counted


class PretokenCounter:
    """Counts the pre-tokens of texts, special tokens apart, for any pattern.

    Pieces are counted first and cut into pre-tokens later, each once.
    """

    def __init__(
        self, pattern: str | None, special_tokens: Iterable[str] = ()
    ) -> None:
        special_tokens = frozenset(special_tokens)
        self._pretokenizer = Pretokenizer(pattern)
        self._cutter = Cutter(pattern, special_tokens)
        self._special_tokens = special_token_finder(special_tokens)
        self._pieces: Counter[str] = Counter()
        self._pretokens: Counter[str] = Counter()

    def add(self, texts: Iterable[str]) -> None:
        """Count in the text that ``texts`` make together."""
        for part in self._cutter.parts(texts, _PART):
            for text in self._special_tokens.split(part)[::2]:
                self._pieces.update(self._pretokenizer.pieces(text))
            if len(self._pieces) > _MANY:
                self._cut_pieces()

    def update(self, counts: Counter[str]) -> None:
        """Count in what another one counted."""
        self._pretokens.update(counts)

    def counts(self) -> Counter[str]:
        """Return how often each pre-token occurred so far."""
        self._cut_pieces()
        return self._pretokens

    def _cut_pieces(self) -> None:
        if self._pretokenizer.pieces_are_pretokens:
            self._pieces.pop("", None)
            self._pretokens.update(self._pieces)
        else:
            for piece, count in self._pieces.items():
                for pretoken in self._pretokenizer.pretokens(piece):
                    self._pretokens[pretoken] += count
        self._pieces.clear()


class BlockCounter:
    """Counts the pre-tokens of texts, special tokens apart, for a known pattern.

    It has the same methods, but its counts are arrays.
    """

    def __init__(self, pattern: str, special_tokens: Iterable[str] = ()) -> None:
        special_tokens = frozenset(special_tokens)
        self._cutter = Cutter(pattern, special_tokens)
        self._special_tokens = special_token_finder(special_tokens)
        self._words = WordCounter(pattern)
        self.update = self._words.update
        self.counts = self._words.counts

    def add(self, texts: Iterable[str]) -> None:
        """Count in the text that ``texts`` make together."""
        for part in self._cutter.parts(texts, _PART):
            documents = self._special_tokens.split(part)[::2]
            self._words.add(DOCUMENT_END.join(map(str.encode, documents)))


def make_counter(
    pattern: str | None, special_tokens: Iterable[str]
) -> PretokenCounter | BlockCounter:
    """Return the fastest counter that there is for a pattern."""
    kind = BlockCounter if pattern in KNOWN_PATTERNS else PretokenCounter
    return kind(pattern, special_tokens)


def count_files(
    paths: Sequence[str | os.PathLike],
    pattern: str | None,
    special_tokens: Iterable[str] = (),
    num_workers: int = 1,
    progress: OnBytes = lambda num_bytes: None,
    counter: PretokenCounter | BlockCounter | None = None,
) -> Counter[str] | WordCounts:
    """Count the pre-tokens of files, after those that a ``counter`` has counted.

    Several processes, this one among them, share plain files; what is compressed is
    not split, and pipes are read by this process. ``progress`` is called with the
    number of bytes read.

    Raises OSError and ValueError as ``read_text`` does, and ChildProcessError,
    which names file and bytes, if a process dies.
    """
    special_tokens = tuple(special_tokens)
    counter = counter or make_counter(pattern, special_tokens)
    shared = []
    for path in paths:
        if num_workers > 1 and is_regular_file(path):
            shared.append(path)
        else:  # another process may not have what this one calls its input
            counter.add(read_text(path, progress=progress))
    shares = share_files(shared, Cutter(pattern, special_tokens), num_workers)
    helpers = _Helpers(shares, num_workers - 1, progress, pattern, special_tokens)
    try:
        helpers.start()
        for share in shares:
            for part in share:
                text = read_text(part.path, part.start, part.stop, helpers.note)
                counter.add(text)
            helpers.hand_over(counter)
        while helpers.running:
            helpers.listen()
            helpers.hand_over(counter)
    finally:
        helpers.stop()
    return counter.counts()


# --- in several processes ---------------------------------------------------------


class _Helpers:
    """Processes that count shares while this one counts others.

    They take shares from where this one takes its own, and are heard whenever it
    has read a block. What they counted is counted in when its own share is done.
    """

    def __init__(
        self,
        shares: Iterator[list[ByteRange]],
        number: int,
        progress: OnBytes,
        pattern: str | None,
        special_tokens: Sequence[str],
    ) -> None:
        self._shares = shares
        self._number = number
        self._progress = progress
        self._arguments = pattern, special_tokens
        self._counts: list[Counter[str] | WordCounts] = []
        self.running: dict[Connection, Worker] = {}

    def start(self) -> None:
        """Start as many as may run, if there are shares."""
        for share in islice(self._shares, self._number - len(self.running)):
            worker = Worker(_work, share, *self._arguments)
            worker.work = f"counted {share[0]}"
            self.running[worker.connection] = worker

    def note(self, num_bytes: int) -> None:
        """Take note of bytes that this process has read."""
        self._progress(num_bytes)
        self.listen(timeout=0)

    def listen(self, timeout: float | None = None) -> None:
        """Take what they have sent, or wait for it."""
        for connection in wait(list(self.running), timeout):
            worker = self.running[connection]
            message = worker.receive()
            if isinstance(message, Exception):
                raise message
            if isinstance(message, ByteRange):
                worker.work = f"counted {message}"
            elif isinstance(message, int):
                self._progress(message)
            else:
                self.running.pop(connection).stop()
                self._counts.append(message)
                self.start()

    def hand_over(self, counter: PretokenCounter | BlockCounter) -> None:
        """Count in what they have counted."""
        while self._counts:
            counter.update(self._counts.pop())

    def stop(self) -> None:
        """End those that still run."""
        for worker in self.running.values():
            worker.stop()


def _work(
    sender: Connection,
    share: list[ByteRange],
    pattern: str | None,
    special_tokens: Sequence[str],
) -> None:
    counter = make_counter(pattern, special_tokens)
    try:
        for part in share:
            sender.send(part)
            counter.add(read_text(part.path, part.start, part.stop, sender.send))
        sender.send(counter.counts())
    except Exception as error:
        sender.send(error)
