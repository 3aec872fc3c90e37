"""Tokens as coloured text, the merges of a word as a tree, and what tokens cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from lmlib.plotting.style import COLORS, FIGURE_WIDTH, ROW_COLORS, TEXT_COLOR

TINT = 0.35  # opacity of a token's colour: text on it can be read in both modes

Step = tuple[int, int, int]

_STYLE = """<style>
.tokens{padding:4px 0;line-height:2;overflow-wrap:anywhere;white-space:pre-wrap}
.tokens>span{border-radius:3px;margin:0 1px;padding:1px}
.tokens>span:has(small){display:inline-block;line-height:1.4;text-align:center}
</style>"""


def color_tokens(tokens: Iterable[bytes], ids: Sequence[int] | None = None) -> str:
    """Return HTML that shows each token on a tint of its own, over its id if given.

    It is real text: it wraps, it can be copied, and no character lacks a font. A
    token that is not whole characters is written as its bytes.

    Raises ValueError if there are not as many ids as tokens.
    """
    tokens = list(tokens)
    if ids is not None and len(ids) != len(tokens):
        raise ValueError(f"{len(ids)} ids for {len(tokens)} tokens: give one each")
    spans = [_span(token, i, ids and ids[i]) for i, token in enumerate(tokens)]
    group = f'<div class="tokens" role="group" aria-label="{len(tokens)} tokens">'
    return f"{_STYLE}{group}{''.join(spans)}</div>"


def _span(token: bytes, place: int, number: int | None) -> str:
    tint = to_hex((*to_rgb(ROW_COLORS[place % len(ROW_COLORS)]), TINT), True)
    below = "" if number is None else f"<br><small>{number}</small>"
    return f'<span style="background:{tint}">{_readable(token)}{below}</span>'


def _readable(token: bytes) -> str:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return f"<code>{token.hex(' ')}</code>"
    return escape(text).replace("\n", "↵\n")


# --- the tree of a word -----------------------------------------------------------


def draw_merge_tree(piece: bytes, steps: Sequence[Step]) -> Figure:
    """Draw how the bytes of a pre-token become tokens, the first merge lowest.

    A step is ``(rank, start, end)``: the two tokens that make up
    ``piece[start:end]`` were merged, by the merge of that rank. Steps come in the
    order in which they are made.

    Raises ValueError for a step that does not merge two neighbours.
    """
    size = (FIGURE_WIDTH, 0.8 + 0.42 * (len(steps) + 1))
    figure, ax = plt.subplots(figsize=size)
    nodes = {(i, i + 1): (i + 0.5, 0.0) for i in range(len(piece))}
    for (start, end), (x, _) in nodes.items():
        ax.text(x, -0.12, _label(piece[start:end]), ha="center", va="top")
    for height, (rank, start, end) in enumerate(steps, start=1):
        left, right = _neighbours(nodes, start, end)
        x = (left[0] + right[0]) / 2
        for child in (left, right):
            ax.plot([child[0], child[0], x], [child[1], height, height], **_BRANCH)
        nodes[start, end] = (x, float(height))
        _name(ax, x, height, f"{_label(piece[start:end])}  {rank:,}")
    ax.set(xlim=(-0.1, len(piece) + 0.9), ylim=(-0.7, len(steps) + 0.8))
    ax.set_axis_off()
    return figure


_BRANCH = {"color": COLORS["data"], "linewidth": 1.6, "solid_capstyle": "round"}


def _neighbours(
    nodes: dict[tuple[int, int], tuple[float, float]], start: int, end: int
) -> list[tuple[float, float]]:
    """Take out the two nodes that lie side by side between two positions."""
    for middle in range(start + 1, end):
        halves = [(start, middle), (middle, end)]
        if all(half in nodes for half in halves):
            return [nodes.pop(half) for half in halves]
    raise ValueError(f"no two tokens make up {start} to {end}: check the steps")


def _name(ax: Axes, x: float, y: float, text: str) -> None:
    # beside the line that may go on upwards
    ax.text(x + 0.08, y + 0.1, text, va="bottom", fontsize=9.5, weight="bold")


def _label(token: bytes) -> str:
    try:
        return token.decode().replace(" ", "␣")
    except UnicodeDecodeError:
        return token.hex(" ")


# --- sizes, speeds, languages -----------------------------------------------------


def draw_compression(
    sizes: Sequence[int], curves: Mapping[str, Sequence[float]]
) -> Figure:
    """Draw bytes per token over the size of the vocabulary, a curve for each text.

    The axis of sizes is logarithmic. Each curve has its name at its end, above it
    or, if another curve ends higher and close by, beneath.
    """
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 2.7))
    ends = [ratios[-1] for ratios in curves.values()]
    for (name, ratios), color in zip(curves.items(), ROW_COLORS, strict=False):
        ax.plot(sizes, ratios, "o-", color=color, markersize=4)
        crowded = any(0 < end - ratios[-1] < 0.5 for end in ends)
        ax.annotate(
            name,
            (sizes[-1], ratios[-1]),
            xytext=(0, -9 if crowded else 8),
            textcoords="offset points",
            color=color,
            ha="right",
            va="top" if crowded else "bottom",
        )
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.set(xlabel="size of the vocabulary", ylabel="bytes per token")
    ax.set_ylim(0, 1.2 * max(ends))
    ax.grid(axis="y")
    return figure


def draw_speeds(speeds: Mapping[str, float], peer: str = "tiktoken") -> Figure:
    """Draw speeds relative to a peer's, a bar for each case, the first on top.

    Bars begin at the speed of the peer: one to the right is faster. The axis is
    logarithmic, so twice as fast and half as fast are equally long.

    Raises ValueError for a speed that is not positive.
    """
    if not all(speed > 0 for speed in speeds.values()):
        raise ValueError(f"a speed must be positive, not {min(speeds.values())}")
    size = FIGURE_WIDTH, 0.9 + 0.27 * len(speeds)
    figure, ax = plt.subplots(figsize=size)
    widths = [speed - 1 for speed in speeds.values()]
    ax.barh(list(speeds), widths, 0.6, left=1, color=COLORS["data"])
    ax.axvline(1, color=COLORS["prediction"], linestyle="--", linewidth=1.2)
    above = {"transform": ax.get_xaxis_transform(), "ha": "center", "va": "bottom"}
    ax.text(1, 1, peer, color=COLORS["prediction"], **above)
    ax.set_ylim(len(speeds) - 0.4, -0.6)
    ax.set_xscale("log")
    lowest, highest = min(0.5, *speeds.values()), max(2, *speeds.values())
    ticks = [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16]
    ticks = [tick for tick in ticks if lowest / 2 < tick < highest * 2]
    ax.set_xticks(ticks, [f"{tick:g} ×" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlim(lowest / 1.1, highest * 1.1)
    ax.set(xlabel=f"speed, relative to {peer}'s")
    return figure


def draw_language_costs(
    names: Sequence[str], byte_costs: Sequence[float], token_costs: Sequence[float]
) -> Figure:
    """Draw what a text costs in each language, in bytes and in tokens.

    Costs are relative to one language, which has 1 twice. Languages come in the
    order given, the first on top; the axis is logarithmic.

    Raises ValueError if there are not as many costs as names.
    """
    if not len(names) == len(byte_costs) == len(token_costs):
        raise ValueError("give each language one cost in bytes and one in tokens")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 0.6 + 0.155 * len(names)))
    rows = range(len(names))
    ax.hlines(
        rows, byte_costs, token_costs, color=TEXT_COLOR, alpha=0.35, linewidth=1
    )
    ax.plot(byte_costs, rows, "o", color=TEXT_COLOR, markersize=4)
    ax.plot(token_costs, rows, "o", color=COLORS["data"], markersize=5)
    last = len(names) - 1
    above = {"textcoords": "offset points", "xytext": (0, -13), "ha": "center"}
    ax.annotate("bytes", (byte_costs[last], last), color=TEXT_COLOR, **above)
    ax.annotate("tokens", (token_costs[last], last), color=COLORS["data"], **above)
    ax.set_xscale("log", base=2)
    ticks = [1, 2, 4, 8, 16]
    ax.set_xticks(ticks, [f"{tick}×" for tick in ticks])
    ax.set_yticks(rows, names, fontsize=8)
    ax.set_ylim(last + 1.4, -0.7)
    ax.grid(axis="x")
    ax.tick_params(axis="y", length=0)
    return figure
