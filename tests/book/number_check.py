"""Every number that the book states must have been computed on the same page, or be a fact with a source.

Three steps: `readable` turns prose and formulas into one line of text, `find_numbers` finds the numbers in
it, and `matches` compares a number with a value "to the digits written".
"""

import ast
import math
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import yaml
from bs4 import BeautifulSoup

from tests.book.pages import ROOT, CodeCell, Page, Section, Text, pieces

BIG_TABLE = 30  # an output with more numbers than this one vouches only for the prose beside it
GAP = "¤"  # stands for what is neither word nor number: code, symbols, names

# --- units -----------------------------------------------------------------------------------------------

DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
SMALL = {"m": Fraction(1, 10**3), "µ": Fraction(1, 10**6), "μ": Fraction(1, 10**6), "n": Fraction(1, 10**9)}


def unit_table() -> dict[str, tuple[str, Fraction]]:
    """Return every unit with the kind of thing it measures and its size in that kind's own unit."""
    units = {}

    def add(kind: str, names: str, size: Fraction | int = 1) -> None:
        units.update({name: (kind, Fraction(size)) for name in names.split()})

    for prefix, size in (DECIMAL | BINARY).items():
        add("bytes", f"{prefix}B", size)
        add("bytes/s", f"{prefix}B/s", size)
    for prefix, size in DECIMAL.items():
        add("FLOPs", f"{prefix}FLOP {prefix}FLOPs", size)
        add("FLOP/s", f"{prefix}FLOP/s {prefix}FLOPs/s {prefix}FLOPS", size)
    for prefix, size in SMALL.items():
        add("time", f"{prefix}s", size)
    add("bytes", "byte bytes")
    add("bytes/s", "byte/s bytes/s")
    add("bits", "bit bits")
    add("FLOP/byte", "FLOP/byte FLOPs/byte FLOP/B")
    add("tokens/s", "tokens/s")
    add("count", "token tokens parameter parameters element elements character characters")
    add("time", "s second seconds")
    add("time", "ms millisecond milliseconds", Fraction(1, 10**3))
    add("time", "microsecond microseconds", Fraction(1, 10**6))
    add("time", "nanosecond nanoseconds", Fraction(1, 10**9))
    add("time", "min minute minutes", 60)
    add("time", "hour hours", 3600)
    add("time", "day days", 86400)
    add("time", "week weeks", 7 * 86400)
    add("ratio", "× x times")
    add("ratio", "% percent", Fraction(1, 100))
    return units


UNITS = unit_table()
MAGNITUDES = {
    "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12,
    "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip

# --- numbers in a line of text ---------------------------------------------------------------------------

THIN = "\u2009\u202f"
SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻"
TO_SUPERSCRIPT = str.maketrans("0123456789+-", SUPERSCRIPTS)
FROM_SUPERSCRIPT = str.maketrans(SUPERSCRIPTS, "0123456789+-")

TIMES = ("×", "x")  # a unit in "3.2× faster", a product in "4×8"
ANY_UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True) if unit not in TIMES)
WORD_MAGNITUDE = "thousand|million|billion|trillion"
NUMBER = re.compile(
    rf"""
    (?<![\w.{GAP}])(?<![A-Za-z][-‑])              # not glued to a letter, nor by a hyphen to a word
    (?P<sign>(?<![-−‑)\]])[-−](?=\d))?
    (?P<whole>(?>\d{{1,3}}(?:[,_{THIN}]\d{{3}})++(?!\d)|\d++))
    (?P<fraction>\.\d++)?+
    (?![.]\d)                                     # 2.13.0 is a version
    (?:
        [eE](?P<exponent>[-−+]?\d++)
      | (?P<power>[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]++)(?![·.][{SUPERSCRIPTS}])
      | [ {THIN}\u00a0]?[×·x][ {THIN}\u00a0]?10(?P<times_ten>[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]++)
    )?+
    (?:(?P<magnitude>[kKMBT])(?!\w)|[ \u00a0](?P<magnitude_word>{WORD_MAGNITUDE})\b)?+
    (?:[ {THIN}\u00a0]?(?P<unit>(?:{ANY_UNIT})(?!\w)|[{"".join(TIMES)}](?!\w|\s?[\d({GAP}])))?+
    (?![\w{GAP}]|[-‑][A-Za-z]|[{SUPERSCRIPTS}])
    """,
    re.VERBOSE,
)
# `2^10` and `2**10`, as superscripts
CARET = re.compile(r"(?<=\d)(?:\^|\*\*)([-−+]?)(\d+)")
YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True)
class Number:
    """A number as written, and what it means."""

    written: str
    value: Fraction
    quantum: Fraction  # the worth of its last written digit; 0 for a power such as 2⁻²⁴, which is exact
    digits: int  # significant ones
    magnitude: str = ""  # as in 124M or 15 trillion
    unit: str = ""

    @property
    def kind(self) -> str:
        """What it measures; empty for a number without a unit."""
        return UNITS[self.unit][0] if self.unit else ""

    @property
    def scale(self) -> Fraction:
        """Its unit in the kind's own unit."""
        return UNITS[self.unit][1] if self.unit else Fraction(1)


def find_numbers(text: str) -> list[Number]:
    """Return every stand-alone number in a line of text, in order."""
    text = CARET.sub(lambda match: (match[1].replace("−", "-") + match[2]).translate(TO_SUPERSCRIPT), text)
    return [to_number(match) for match in NUMBER.finditer(text)]


def to_number(match: re.Match) -> Number:
    """Turn a match of NUMBER into a number."""
    whole = re.sub(r"\D", "", match["whole"])
    fraction = (match["fraction"] or "").removeprefix(".")
    mantissa = Fraction(int(whole + fraction), 10 ** len(fraction))
    quantum = Fraction(1, 10 ** len(fraction))
    digits = len((whole + fraction).lstrip("0"))
    exponent = signed(match["exponent"] or match["times_ten"] or "0")
    magnitude = match["magnitude"] or match["magnitude_word"] or ""
    factor = Fraction(10) ** exponent * MAGNITUDES.get(magnitude, 1)
    if match["power"] and mantissa:
        mantissa = mantissa ** signed(match["power"])
        quantum = Fraction(0)
        digits = len(str(mantissa.numerator if mantissa >= 1 else mantissa.denominator).strip("0"))
    if match["sign"]:
        mantissa = -mantissa
    unit = match["unit"] or ""
    return Number(match[0].strip(), mantissa * factor, quantum * factor, digits, magnitude, unit)


def signed(exponent: str) -> int:
    """Read an exponent, which may be in superscripts; one beyond any number of this book is cut off."""
    value = int(exponent.translate(FROM_SUPERSCRIPT).replace("−", "-"))
    return max(-2000, min(2000, value))


def must_be_checked(number: Number) -> bool:
    """Whether the book has to show where the number comes from: it has a unit, or three digits or more."""
    if number.unit or number.magnitude:
        return True
    return number.digits >= 3 and not YEAR.fullmatch(number.written)


# --- prose and formulas as one line ----------------------------------------------------------------------

ADDRESS = re.compile(r"https?://\S+|\b(?:arXiv|doi):\s?\S+", re.IGNORECASE)
LATEX = re.compile(
    r"""
    \\(?:text|textrm|mathrm|operatorname|mbox)\s*\{(?P<words>[^{}]*)\}
  | \^\s*(?:\{(?P<exponent>[^{}]*)\}|(?P<short_exponent>\w))
  | _\s*(?:\{[^{}]*\}|\\[A-Za-z]+|\w)             # an index belongs to the name it stands at
  | \\(?:begin|end)\{[^{}]*\}
  | (?P<comma>\{,\})
  | (?P<thin>\\,)
  | (?P<percent>\\%)
  | (?P<times>\\(?:times|cdot)(?![A-Za-z]))
  | (?P<micro>\\mu(?![A-Za-z]))
  | \\[A-Za-z]+ | \\. | [{}&~]
  | (?P<symbol>[A-Za-z])
  | (?P<minus>-)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def readable(text: Text, names: list[str]) -> str:
    """Return what a reader sees as one line, with formulas in plain characters and names, addresses left out."""
    shown = {"words": lambda words: words, "math": plain_formula, "gap": lambda _: f" {GAP} "}
    line = "".join(shown[kind](content) for kind, content in pieces(text))
    line = ADDRESS.sub(f" {GAP} ", line)
    for name in sorted(names, key=len, reverse=True):
        line = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", f" {GAP} ", line)
    return re.sub(r"[ \n\t]+", " ", line)


def plain_formula(latex: str) -> str:
    """Write a formula in plain characters: `4{,}608` as 4,608, `2^{-24}` as 2⁻²⁴; a symbol becomes a gap."""
    line = ""
    for match in LATEX.finditer(latex.strip()):
        if match["words"] is not None:
            line += match["words"]
        elif match["exponent"] or match["short_exponent"]:
            line = line.rstrip() + superscript(match["exponent"] or match["short_exponent"])
        elif match["comma"]:
            line += ","
        elif match["thin"]:
            line += THIN[0]
        elif match["percent"]:
            line += "%"
        elif match["times"]:  # at the end it is the unit in "$4\times$ faster", elsewhere a product
            line += "×" if match.end() == len(latex.strip()) else " · "
        elif match["micro"]:
            line += "µ"
        elif match["symbol"]:
            line += f" {GAP} "
        elif match["minus"]:  # a sign, unless something stands before it
            line += " − " if re.search(rf"[\w)\]{GAP}{SUPERSCRIPTS}]\s*$", line) else "−"
        else:
            line += match["other"] or " "
    return re.sub(" +", " ", line)


def superscript(exponent: str) -> str:
    """Return a constant exponent such as `-24` or `1-15` in superscripts; any other one is a symbol."""
    if re.fullmatch(r"[\s\d+-]*\d\s*", exponent):
        value = constant(ast.parse(re.sub(r"\b0+(?=\d)", "", exponent.strip()), mode="eval").body)
        if isinstance(value, int):
            return str(value).translate(TO_SUPERSCRIPT)
    return f"{GAP} "


# --- values: outputs, asserts, facts ---------------------------------------------------------------------

OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.UAdd: operator.pos, ast.USub: operator.neg,
}  # fmt: skip


def constant(node: ast.AST) -> int | float | None:
    """Return the value of an expression made of numbers alone, None for any other."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value) if value < math.inf:
            return value
        case ast.UnaryOp(op=op, operand=operand):
            arguments = [constant(operand)]
        case ast.BinOp(op=op, left=left, right=right):
            arguments = [constant(left), constant(right)]
        case _:
            return None
    if None in arguments or type(op) not in OPERATORS:
        return None
    if isinstance(op, ast.Pow | ast.LShift) and abs(arguments[1]) > 2000:
        return None
    try:
        result = OPERATORS[type(op)](*arguments)
    except (ArithmeticError, TypeError, ValueError):
        return None
    is_finite = isinstance(result, int) or (isinstance(result, float) and math.isfinite(result))
    return result if is_finite else None


def python_source(source: str) -> str:
    """Return a cell's source without IPython's magics, so that Python can parse it."""
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)


def asserted_values(cell: CodeCell) -> Iterator[Number]:
    """Yield every number in the cell's asserts, and every sub-expression made of numbers alone."""
    try:
        tree = ast.parse(python_source(cell.source))
    except SyntaxError:  # an exercise may show Python that does not parse; it then asserts nothing
        return
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Assert):
            values = [constant(node) for node in ast.walk(statement.test)]
            yield from (exact(value) for value in values if value is not None)


def exact(value: int | float) -> Number:
    """Return the number that Python prints for a value."""
    return Number(repr(value), Fraction(repr(value)), Fraction(0), digits=0)


def output_texts(cell: CodeCell) -> Iterator[str]:
    """Yield the text of each output as the reader sees it; what a cell prints piece by piece is one output."""
    printed = "".join(output["text"] for output in cell.outputs if output["output_type"] == "stream")
    if printed:
        yield re.sub(r"\x1b\[[\d;]*m", "", printed)
    for output in cell.outputs:
        if output["output_type"] == "error":
            yield output["evalue"]
        elif output["output_type"] != "stream":
            yield shown_text(output["data"])


def shown_text(data: dict) -> str:
    """Return the text of the richest form of an output, which is the one that the page shows."""
    if "text/html" in data:
        return BeautifulSoup(data["text/html"], "html.parser").get_text(" ")
    if "text/markdown" in data:
        return data["text/markdown"]
    text = data.get("text/plain", "")
    return "" if text.startswith("<Figure size") else text


def section_values(section: Section) -> tuple[list[Number], list[Number]]:
    """Return the values that count from this section on, and those of big tables, which count only in it."""
    lasting: list[Number] = []
    beside: list[Number] = []
    for cell in section.code_cells:
        lasting += asserted_values(cell)
        for text in output_texts(cell):
            numbers = [number for line in text.splitlines() for number in find_numbers(line)]
            (beside if len(numbers) > BIG_TABLE else lasting).extend(numbers)
    return lasting, beside


def read_facts(path: Path = ROOT / "book/facts.yml") -> list[dict]:
    """Return the facts with a source that every page may state."""
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader) or []  # keeps 3.14e23 as written


def read_names(path: Path = ROOT / "book/names.yml") -> list[str]:
    """Return the names whose digits are no numbers."""
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader) or []


def fact_value(fact: dict) -> Number | None:
    """Return a fact's value with its unit; None where it is not one number."""
    numbers = find_numbers(f"{fact.get('value')} {fact.get('unit')}")
    return numbers[0] if len(numbers) == 1 else None


def fact_complaints(facts: list[dict]) -> list[str]:
    """Say which facts lack a part, or have a value that is not a number."""
    complaints = []
    for fact in facts:
        missing = [part for part in ("value", "unit", "what", "source") if not fact.get(part)]
        if missing:
            complaints.append(f"book/facts.yml: {fact} lacks {', '.join(missing)}: add it.")
        elif fact_value(fact) is None:
            complaints.append(f"book/facts.yml: the value of {fact} must be one number, such as 3350 or 3.14e23.")
    return complaints


# --- the check -------------------------------------------------------------------------------------------


def matches(number: Number, value: Number) -> bool:
    """Whether a value, rounded to the digits that the number is written with, is that number.

    Where both have a unit, they are compared in it (2.25 GB is not 2.25 GiB). Where one has none, it may be
    meant in either way: 2.25 GB may have been computed as 2.25 or as 2250000000.
    """
    if number.kind and value.kind:
        return number.kind == value.kind and close(number, value.value * value.scale, number.scale)
    if number.kind:
        return close(number, value.value, number.scale) or close(number, value.value)
    return close(number, value.value) or (bool(value.kind) and close(number, value.value * value.scale))


def close(number: Number, value: Fraction, scale: Fraction = Fraction(1)) -> bool:
    """Whether a value lies within half the worth of the number's last digit."""
    tolerance = number.quantum / 2 if number.quantum else abs(number.value) / 10**12
    return abs(value - number.value * scale) <= tolerance * scale


@dataclass(frozen=True)
class Checked:
    """A number of the prose with the values that may vouch for it."""

    number: Number
    text: Text
    index: int  # among all numbers that must be checked in this text
    section: Section
    values: tuple[Number, ...]

    @property
    def is_shown(self) -> bool:
        """Whether some value is this number."""
        return any(matches(self.number, value) for value in self.values)

    def with_number(self, number: Number) -> "Checked":
        """Return the same place with another number in it."""
        return replace(self, number=number)


def checked_numbers(text: Text, names: list[str]) -> list[Number]:
    """Return the numbers of a text that the book has to account for."""
    return [number for number in find_numbers(readable(text, names)) if must_be_checked(number)]


def check_page(page: Page, facts: list[dict], names: list[str]) -> list[Checked]:
    """Return every number to be checked on a page, with the values of its section and of earlier ones."""
    known = [value for fact in facts if (value := fact_value(fact))]
    checked = []
    for section in page.sections:
        lasting, beside = section_values(section)
        known += lasting
        values = tuple({(value.value, value.unit): value for value in known + beside}.values())
        for text in section.texts:
            numbers = enumerate(checked_numbers(text, names))
            checked += [Checked(number, text, index, section, values) for index, number in numbers]
    return checked


def number_complaints(page: Page, facts: list[dict], names: list[str]) -> list[str]:
    """Say which numbers of a page were neither computed nor are facts."""
    return [
        f"{page.docname}, {checked.text.where}, section “{checked.section.title}”: “{checked.number.written}” is in no "
        "output and no assert of this section or an earlier one: compute it in a cell, assert it, or put it with "
        "its source into book/facts.yml."
        for checked in check_page(page, facts, names)
        if not checked.is_shown
    ]


# --- mutation --------------------------------------------------------------------------------------------


def unnoticed_mutations(page: Page, facts: list[dict], names: list[str]) -> list[str]:
    """Say for which numbers of three digits or more no changed digit in the source would be noticed."""
    places: dict[Text, list[Checked]] = {}
    for checked in check_page(page, facts, names):
        places.setdefault(checked.text, []).append(checked)
    complaints = []
    for text, all_checked in places.items():
        noticed = noticed_mutations(text, all_checked, names)
        complaints += [
            f"{page.docname}, {text.where}: a wrong digit in “{checked.number.written}” would go unnoticed; "
            "fewer values near it, or more of its digits, would let the check see it."
            for checked in all_checked
            if checked.number.digits >= 3 and checked.index not in noticed
        ]
    return complaints


def noticed_mutations(text: Text, all_checked: list[Checked], names: list[str]) -> set[int]:
    """Return the indices of those numbers for which changing one digit of the source gives a complaint."""
    noticed: set[int] = set()
    for changed in one_digit_changed(text):
        numbers = checked_numbers(changed, names)
        if len(numbers) != len(all_checked):
            continue  # "100" became "000": no longer a number to be checked, so try another digit
        for number, checked in zip(numbers, all_checked, strict=True):
            if number != checked.number and not checked.with_number(number).is_shown:
                noticed.add(checked.index)
        if len(noticed) == len(all_checked):
            break
    return noticed


def one_digit_changed(text: Text) -> Iterator[Text]:
    """Yield the text with each digit replaced by each other one: first by its successor, then by the rest."""
    for step in range(1, 10):
        for place, digit in enumerate(text.source):
            if digit.isascii() and digit.isdigit():
                other = str((int(digit) + step) % 10)
                yield replace(text, source=text.source[:place] + other + text.source[place + 1 :])
