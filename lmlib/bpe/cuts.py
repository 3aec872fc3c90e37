r"""Cutting a long text so that its parts, encoded one by one, give the same ids.

Two conditions make a cut safe. It is inside no special token, of which there are
none longer than the longest. And pre-tokens on both sides are those of the whole
text. That holds next to a special token, whatever the pattern; for the three
patterns of ``patterns`` also

- between a letter or number and something else, mark and apostrophe apart,
- between what is no white space and white space that is no line break,

for the reasons that ``pretokens`` gives. For other patterns the text between two
special tokens stays in one part, however long it is.
"""

from collections.abc import Iterable, Iterator

from lmlib.bpe.class_patterns import compile_by_class, replace_by_class
from lmlib.bpe.pretokens import KNOWN_PATTERNS
from lmlib.bpe.special_tokens import special_token_finder
from lmlib.bpe.surrogates import replace_surrogates

__all__ = ["Cutter"]

_BETWEEN_PRETOKENS = compile_by_class(
    r"(?<=[\p{L}\p{N}])(?=[^\p{L}\p{N}\p{M}'])|(?<=\S)(?=\s)(?![\r\n])"
)
_WINDOW = 1000  # characters


class Cutter:
    """Finds safe cuts.

    ``special_tokens`` are those that encoding will recognise; ``others`` are not
    recognised, but not cut either.
    """

    def __init__(
        self,
        pattern: str | None,
        special_tokens: Iterable[str] = (),
        others: Iterable[str] = (),
    ) -> None:
        recognised = frozenset(special_tokens)
        self._recognised = special_token_finder(recognised)
        self._whole = special_token_finder(recognised.union(others))
        self._is_known = pattern in KNOWN_PATTERNS
        longest = max(1, self._whole.max_length)
        # A token that ends at a cut must not start inside another one.
        self.characters_before = 2 * longest
        self._characters_after = longest

    def first_cut(self, text: str, start: int) -> int | None:
        """Return the first safe cut at ``start`` or later, or None.

        Where more text comes before, ``characters_before`` of it suffice.
        """
        stop = self._stop(text)
        cuts = self._cuts(text, start, stop) if start < stop else ()
        return min(cuts, default=None)

    def last_cut(self, text: str) -> int | None:
        """Return the last safe cut that no text to come makes unsafe, or None."""
        stop, window = self._stop(text), _WINDOW
        while stop > 1:
            start = max(1, stop - window)
            cuts = self._cuts(text, start, stop)
            if cuts:
                return max(cuts)
            stop, window = start, 2 * window
        return None

    def parts(self, texts: Iterable[str], size: int = 2**15) -> Iterator[str]:
        """Cut the text that ``texts`` make together into parts of about a size.

        Yields text without surrogates. A text of ``texts`` may end anywhere, even
        between the two halves of a character outside the BMP.
        """
        held: list[str] = []
        length, enough = 0, size
        for text in _slices(texts, size):
            held.append(text)
            length += len(text)
            if length < enough:
                continue
            joined, half = _split_off_high_surrogate("".join(held))
            joined = replace_surrogates(joined)
            cut = self.last_cut(joined) or 0
            if cut:
                yield joined[:cut]
            held = [joined[cut:] + half]
            length = len(held[0])
            enough = max(size, 2 * length)  # so that nothing is searched often
        yield replace_surrogates("".join(held))

    def _stop(self, text: str) -> int:
        return len(text) - self._characters_after + 1

    def _cuts(self, text: str, start: int, stop: int) -> set[int]:
        """Return the safe cuts of a range."""
        first = max(0, start - self.characters_before)
        inside: set[int] = set()
        covered = 0
        for begin, end in self._whole.spans(text, first, stop):
            inside.update(range(max(begin + 1, covered), end))
            covered = max(covered, end)
        beside = set()
        for begin, end in self._recognised.spans(text, first, stop):
            if begin not in inside:  # else it may be part of another one
                beside |= {begin, end}
        if self._is_known:
            before = max(0, start - 1)
            letters = replace_by_class(text[before:stop])
            matches = _BETWEEN_PRETOKENS.finditer(letters)
            beside.update(before + match.start() for match in matches)
        return {cut for cut in beside - inside if start <= cut < stop}


def _slices(texts: Iterable[str], size: int) -> Iterator[str]:
    for text in texts:
        for start in range(0, len(text), size):
            yield text[start : start + size]


def _split_off_high_surrogate(text: str) -> tuple[str, str]:
    """Split off a last character that may be the first half of another one."""
    if text and "\ud800" <= text[-1] <= "\udbff":
        return text[:-1], text[-1]
    return text, ""
