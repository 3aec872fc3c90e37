"""The sources of the book as one structure, which all checks of the sources read.

A page is a flat list of blocks in the order of the file: headings, link targets, texts, directives (with
blocks of their own inside) and code cells. `Text.source` is Markdown as it stands in the file; `pieces`
says which of it a reader sees as words and which as mathematics.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import nbformat
import yaml
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

ROOT = Path(__file__).parents[2]

# Directives whose body is code, an address list or a file's content: nothing in them is prose.
WITHOUT_PROSE = {
    "autoclass", "autofunction", "automodule", "bibliography", "code", "code-block", "csv-table", "eval-rst",
    "highlight", "include", "index", "literalinclude", "math", "mermaid", "raw", "tableofcontents", "toctree",
}  # fmt: skip
# Directives whose argument is a label, a path or a domain name, not a title.
WITHOUT_TITLE = WITHOUT_PROSE | {"figure", "image", "solution", "solution-start", "solution-end"}
# Directive options that a reader sees.
PROSE_OPTIONS = ("alt", "caption", "title")

# Roles that show only an address, a citation or code.
SILENT_ROLES = re.compile(r"cite|code|download|func|class|meth|mod|data|py:|doc$|eval")
TITLED_TARGET = re.compile(r"(?P<title>.*?)\s*<[^<>]*>", re.DOTALL)


@dataclass(frozen=True)
class Text:
    """One paragraph, title, caption, alternative text or table cell; or one displayed formula."""

    source: str
    where: str
    is_formula: bool = False


@dataclass(frozen=True)
class Heading:
    """A heading; its level is 1 for a page's title."""

    level: int
    title: Text
    where: str


@dataclass(frozen=True)
class Target:
    """An explicit label, `(name)=`."""

    name: str
    where: str


@dataclass(frozen=True)
class Directive:
    """A directive with its options as they are written and the blocks of its body."""

    name: str
    argument: str
    options: dict
    texts: tuple[Text, ...]  # of its argument and options
    children: tuple
    where: str

    @property
    def classes(self) -> list[str]:
        """The value of the option `class`, as a list."""
        return str(self.options.get("class") or "").split()


@dataclass(frozen=True)
class CodeCell:
    """A code cell; a page in Markdown stores no outputs, so its cells have none."""

    source: str
    metadata: dict
    outputs: tuple
    execution_count: int | None
    texts: tuple[Text, ...]  # its figure's caption and alternative text
    where: str

    @property
    def tags(self) -> list[str]:
        """The cell's tags."""
        return self.metadata.get("tags", [])

    def figure_option(self, option: str, part: str) -> str:
        """What myst-nb is told about the figure, such as ("image", "alt"); empty where it is told nothing."""
        return str(self.metadata.get("mystnb", {}).get(option, {}).get(part) or "")


Block = Text | Heading | Target | Directive | CodeCell


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, up to the next heading of any level."""

    title: str
    level: int
    blocks: list[Block] = field(default_factory=list)

    @property
    def texts(self) -> list[Text]:
        """All prose of the section, its heading included."""
        return [block for block in walk(self.blocks) if isinstance(block, Text)]

    @property
    def code_cells(self) -> list[CodeCell]:
        """All code cells of the section."""
        return [block for block in walk(self.blocks) if isinstance(block, CodeCell)]


@dataclass(frozen=True)
class Page:
    """A page of the book."""

    docname: str
    path: Path
    blocks: list[Block]

    @property
    def is_chapter(self) -> bool:
        """Whether its name begins with a chapter's number."""
        return re.match(r"\d\d_", Path(self.docname).name) is not None

    @property
    def stem(self) -> str:
        """The file's name without ending, `02_tensors`."""
        return Path(self.docname).name

    @property
    def chapter(self) -> str:
        """The chapter's name without its number, `tensors`."""
        return re.sub(r"^\d\d_", "", self.stem)

    @property
    def code_cells(self) -> list[CodeCell]:
        """All code cells in order."""
        return [block for block in walk(self.blocks) if isinstance(block, CodeCell)]

    @property
    def sections(self) -> list[Section]:
        """The sections in order; what stands before the first heading is a section named "(top)"."""
        sections = [Section("(top)", 0)]
        for block in self.blocks:
            if isinstance(block, Heading):
                sections.append(Section(plain(block.title), block.level))
            sections[-1].blocks.append(block)
        return [section for section in sections if section.blocks]


def walk(blocks: list[Block] | tuple[Block, ...]) -> Iterator[Block]:
    """Yield every block and the blocks inside it, in the order of the file."""
    for block in blocks:
        yield block
        match block:
            case Heading():
                yield block.title
            case Directive():
                yield from block.texts
                yield from walk(block.children)
            case CodeCell():
                yield from block.texts


# --- from files to pages ---------------------------------------------------------------------------------


def toc_docnames(root: Path = ROOT) -> list[str]:
    """Return the names of all pages in _toc.yml, the root first."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))

    def files(entry: dict) -> Iterator[str]:
        if "file" in entry:
            yield entry["file"]
        for key in ("parts", "chapters", "sections"):
            for child in entry.get(key) or []:
                yield from files(child)

    return [toc["root"], *files(toc)]


def read_book(root: Path = ROOT) -> list[Page]:
    """Read every page of the table of contents."""
    return [read_page(docname, root) for docname in toc_docnames(root)]


def read_page(docname: str, root: Path = ROOT) -> Page:
    """Read the notebook or the Markdown file of one page."""
    for ending, read in ((".ipynb", read_notebook), (".md", read_markdown)):
        path = root / f"{docname}{ending}"
        if path.exists():
            return Page(docname, path, read(path.read_text(encoding="utf-8")))
    raise FileNotFoundError(f"_toc.yml lists {docname}, but there is neither {docname}.ipynb nor {docname}.md")


def read_notebook(source: str) -> list[Block]:
    """Turn a notebook's JSON into blocks."""
    blocks: list[Block] = []
    for number, cell in enumerate(nbformat.reads(source, as_version=4).cells, start=1):
        where = f"cell {number}"
        if cell.cell_type == "markdown":
            blocks += parse_markdown(cell.source, f"{where}, line ")
        elif cell.cell_type == "code":
            outputs = tuple(cell.outputs)
            blocks.append(code_cell(cell.source, cell.metadata, outputs, cell.execution_count, where))
    return blocks


def read_markdown(source: str) -> list[Block]:
    """Turn a Markdown page, or a notebook written as Markdown, into blocks."""
    return parse_markdown(source, "line ")


def code_cell(source: str, metadata: dict, outputs: tuple, execution_count: int | None, where: str) -> CodeCell:
    """Make a code cell, with the prose that its metadata holds."""
    cell = CodeCell(source, metadata, outputs, execution_count, (), where)
    written = (cell.figure_option("figure", "caption"), cell.figure_option("image", "alt"))
    texts = tuple(Text(text, where) for text in written if text)
    return CodeCell(source, metadata, outputs, execution_count, texts, where)


# --- Markdown --------------------------------------------------------------------------------------------


@cache
def markdown_parser() -> MarkdownIt:
    """Return the parser of the book, with the extensions that _config.yml names."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    extensions = config["parse"]["myst_enable_extensions"]
    return create_md_parser(MdParserConfig(enable_extensions=extensions), RendererHTML)


def parse_markdown(source: str, place: str, first_line: int = 1) -> list[Block]:
    """Turn Markdown into blocks; `place` is what stands before a line's number in `where`."""
    blocks: list[Block] = []
    tokens = markdown_parser().parse(source)
    line = first_line
    for position, token in enumerate(tokens):
        if token.map:
            line = first_line + token.map[0]
        where = f"{place}{line}"
        match token.type:
            case "inline" if tokens[position - 1].type == "heading_open":
                level = int(tokens[position - 1].tag[1])
                blocks.append(Heading(level, Text(token.content, where), where))
            case "inline":
                blocks.append(Text(token.content, where))
            case "math_block" | "math_block_label" | "amsmath":
                blocks.append(Text(token.content, where, is_formula=True))
            case "myst_target":
                blocks.append(Target(token.content, where))
            case "colon_fence" | "fence" if token.info.startswith("{"):
                blocks.append(directive(token, place, line))
    return blocks


def directive(token: Token, place: str, line: int) -> Directive | CodeCell:
    """Turn a fence whose info is `{name} argument` into a directive, or into a code cell."""
    name, _, argument = token.info.removeprefix("{").partition("}")
    argument = argument.strip()
    where = f"{place}{line}"
    options, body, skipped = split_options(token.content)
    if name == "code-cell":
        return code_cell(body, options, (), None, where)
    titles = [] if name in WITHOUT_TITLE else [argument]
    titles += [str(options[option]) for option in PROSE_OPTIONS if option in options]
    texts = [Text(title, where) for title in titles if title]
    children: list[Block] = []
    if name == "math":
        texts.append(Text(f"{argument}\n{body}".strip(), where, is_formula=True))
    elif name not in WITHOUT_PROSE:
        children = parse_markdown(body, place, line + 1 + skipped)
    return Directive(name, argument, options, tuple(texts), tuple(children), where)


def split_options(content: str) -> tuple[dict, str, int]:
    """Split a directive's content into its options, its body, and the number of lines that options took."""
    lines = content.splitlines()
    if lines and lines[0].strip() == "---" and "---" in lines[1:]:
        end = lines.index("---", 1)
        return yaml.safe_load("\n".join(lines[1:end])) or {}, "\n".join(lines[end + 1 :]), end + 1
    count = 0
    options = {}
    for line in lines:
        option = re.match(r":([\w-]+):\s*(.*)", line)
        if not option:
            break
        options[option[1]] = option[2]
        count += 1
    if "tags" in options:
        options["tags"] = re.findall(r"[\w-]+", options["tags"])
    return options, "\n".join(lines[count:]), count


# --- what a reader sees ----------------------------------------------------------------------------------


def pieces(text: Text) -> Iterator[tuple[str, str]]:
    """Yield ("words", …) and ("math", …) in order, and ("gap", "") for what is neither: code, citations."""
    if text.is_formula:
        yield "math", text.source
        return
    for token in markdown_parser().parseInline(text.source)[0].children or []:
        yield from token_pieces(token)


def token_pieces(token: Token) -> Iterator[tuple[str, str]]:
    """Yield the pieces of one inline token."""
    match token.type:
        case "text" | "image":  # an image's content is its alternative text
            yield "words", token.content
        case "softbreak" | "hardbreak":
            yield "words", " "
        case "math_inline" | "math_inline_double" | "amsmath":
            yield "math", token.content
        case "myst_role":
            yield from role_pieces(token.meta["name"], token.content)
        case "code_inline" | "html_inline" | "substitution_inline":
            yield "gap", ""


def role_pieces(name: str, content: str) -> Iterator[tuple[str, str]]:
    """Yield what a role shows: a formula, the title written before its target, or its own words."""
    titled = TITLED_TARGET.fullmatch(content)
    if name == "math":
        yield "math", content
    elif SILENT_ROLES.match(name) and not (titled and name == "doc"):
        yield "gap", ""
    elif titled:
        yield "words", titled["title"]
    elif "ref" in name:  # a bare label; the build replaces it with the title of what it points to
        yield "gap", ""
    else:
        yield "words", content


def plain(text: Text) -> str:
    """Return the text as one readable line, formulas as they are written."""
    return " ".join("".join(content for _, content in pieces(text)).split())
