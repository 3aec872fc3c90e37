"""Every chapter has the same parts in the same order, complete exercises, short cells and described figures."""

import ast
from collections.abc import Iterator
from itertools import pairwise

from tests.book.number_check import python_source
from tests.book.pages import ROOT, CodeCell, Directive, Heading, Page, Target, Text, plain, walk

CLOSING_HEADINGS = ("In lmlib", "Exercises", "Summary", "Sources")
OPEN_CELL_LINES = 15
FOLDED_CELL_LINES = 40
FOLDING_TAGS = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
SHORTEST_ALT = 40
CELLS_FOR_IMPORTS = 2  # the install cell and the one after it


# --- parts and their order -------------------------------------------------------------------------------


def part_complaints(page: Page) -> list[str]:
    """Say which part of the skeleton a chapter lacks, or has in the wrong place."""
    places = part_places(page)
    complaints = [f"{page.docname}: it has no {part}: add it." for part, place in places.items() if place is None]
    found = [(part, place) for part, place in places.items() if place is not None]
    complaints += [
        f"{page.docname}: {part} comes before {earlier}: put it after."
        for (earlier, earlier_place), (part, place) in pairwise(found)
        if place < earlier_place
    ]
    return complaints + content_complaints(page)


def part_places(page: Page) -> dict[str, int | None]:
    """Return where each part of the skeleton first stands, in the order in which they belong."""
    headings = [(plain(block.title), block.level, place) for place, block in placed(page, Heading)]
    levels = {1: [], 2: []}
    for title, level, place in headings:
        levels.setdefault(level, []).append((title, place))
    claims = [place for title, place in levels[2] if title not in CLOSING_HEADINGS]
    places = {
        "title (`# …`)": first(place for _, place in levels[1]),
        "goal box (`:class: goal`)": box_place(page, "goal"),
        "prediction (`:class: predict`)": box_place(page, "predict"),
        "section (`## …`)": first(claims),
        "lecture box (`:class: lecture`)": box_place(page, "lecture"),
    }
    for closing in CLOSING_HEADINGS:
        places[f"section “{closing}”"] = first(place for title, place in levels[2] if title == closing)
    return places


def placed(page: Page, kind: type) -> Iterator[tuple[int, object]]:
    """Yield the blocks of one kind with their place among the page's blocks, nested ones at their parent's."""
    for place, block in enumerate(page.blocks):
        yield from ((place, inner) for inner in walk([block]) if isinstance(inner, kind))


def first(places: Iterator[int] | list[int]) -> int | None:
    """Return the first of some places, None where there is none."""
    return next(iter(places), None)


def box_place(page: Page, class_: str) -> int | None:
    """Return where the first admonition of a class stands."""
    boxes = ((place, box) for place, box in placed(page, Directive) if box.name == "admonition")
    return first(place for place, box in boxes if class_ in box.classes)


def content_complaints(page: Page) -> list[str]:
    """Say which part of a chapter is there but holds nothing."""
    complaints = []
    goal = [block for block in page.blocks if not isinstance(block, Target | CodeCell)][1:2]
    if not (goal and isinstance(goal[0], Directive) and "goal" in goal[0].classes):
        complaints.append(f"{page.docname}: the goal box must follow the title directly: move it there.")
    if not any(is_figure(cell) for cell in page.code_cells):
        complaints.append(f"{page.docname}: no cell draws a figure: add one that shows the chapter's idea.")
    for section in page.sections:
        if section.level == 2 and not any(block for block in section.blocks[1:] if not isinstance(block, Target)):
            following = page.sections[page.sections.index(section) + 1 :]
            if not (following and following[0].level > 2):
                complaints.append(f"{page.docname}, section “{section.title}”: it is empty: write it.")
    return complaints + library_complaints(page)


def library_complaints(page: Page) -> list[str]:
    """Say what is wrong with the section that shows the library's own source."""
    paths = []
    under_lmlib = False
    for section in page.sections:
        under_lmlib = section.title == "In lmlib" or (under_lmlib and section.level > 2)
        if under_lmlib:
            directives = (block for block in walk(section.blocks) if isinstance(block, Directive))
            paths += [(block.argument, block.where) for block in directives if block.name == "literalinclude"]
    shown = [(path, where) for path, where in paths if "lmlib/" in path]
    if not shown:
        return [f"{page.docname}, section “In lmlib”: show the library's source with a literalinclude of ../lmlib/…."]
    folder = ROOT / page.docname
    return [
        f"{page.docname}, {where}: there is no file {path}: correct the literalinclude's path."
        for path, where in shown
        if not (folder.parent / path).exists()
    ]


# --- exercises -------------------------------------------------------------------------------------------


def exercise_complaints(page: Page, registered: list[str]) -> list[str]:
    """Say what the exercises of a chapter lack; `registered` are the names that lmlib.exercises knows."""
    exercises = [block for _, block in placed(page, Directive) if block.name == "exercise"]
    complaints = [] if exercises else [f"{page.docname}: it has no exercise: add one under “Exercises”."]
    used = []
    for exercise in exercises:
        label = exercise.options.get("label", "")
        where = f"{page.docname}, {exercise.where}, exercise “{exercise.argument}”"
        if not label.startswith(f"{page.chapter}-"):
            complaints.append(f"{where}: give it a `:label:` that begins with “{page.chapter}-”.")
            continue
        name = check_name(label)
        used.append(name)
        complaints += [f"{where}: {fault}" for fault in exercise_faults(page, exercise, label, name)]
        if name not in registered:
            complaints.append(f"{where}: register “{name}” in lmlib/exercises/{page.chapter}.py.")
    complaints += [
        f"{page.docname}: lmlib.exercises knows “{name}”, but no exercise of this chapter has its label: add the "
        "exercise or remove its check."
        for name in registered
        if name not in used
    ]
    return complaints


def check_name(label: str) -> str:
    """Return the name of an exercise's check: `tensors-half-a-view` becomes `tensors.half_a_view`."""
    chapter, _, name = label.partition("-")
    return f"{chapter}.{name.replace('-', '_')}"


def exercise_faults(page: Page, exercise: Directive, label: str, name: str) -> list[str]:
    """Say what one exercise lacks: its hint, its check, its solution."""
    faults = []
    hints = (block for block in walk(exercise.children) if isinstance(block, Directive))
    if not any(hint.name == "dropdown" and hint.argument == "Hint" and hint.children for hint in hints):
        faults.append("it has no hint: nest `:::{dropdown} Hint` in it.")
    start = solution_place(page, label)
    place = next(place for place, block in placed(page, Directive) if block is exercise)
    before = page.blocks[place + 1 : start]
    check = first_cell_after(before)
    if check is None or not ends_in_check(check, name):
        faults.append(f'the code cell after it must end in `check("{name}", …)`.')
    if start is None:
        return [*faults, f"it has no solution: add `:::{{solution-start}} {label}` with `:class: dropdown`."]
    if start < place:
        return [*faults, "its solution stands before it: put it after."]
    return faults + solution_faults(page, start, name)


def first_cell_after(blocks: list) -> CodeCell | None:
    """Return the first code cell among some blocks, unless another exercise comes before it."""
    for block in blocks:
        if isinstance(block, Directive) and block.name == "exercise":
            return None
        if isinstance(block, CodeCell):
            return block
    return None


def solution_place(page: Page, label: str) -> int | None:
    """Return where the gated solution of an exercise begins."""
    starts = ((place, block) for place, block in placed(page, Directive) if block.name == "solution-start")
    return first(place for place, block in starts if block.argument == label)


def solution_faults(page: Page, start: int, name: str) -> list[str]:
    """Say what a gated solution lacks."""
    faults = []
    if "dropdown" not in page.blocks[start].classes:
        faults.append("its solution-start lacks `:class: dropdown`, so that it is not hidden.")
    inside = []
    for block in page.blocks[start + 1 :]:
        if isinstance(block, Directive) and block.name in ("solution-end", "solution-start", "exercise"):
            break
        inside.append(block)
    else:
        block = None
    if not (isinstance(block, Directive) and block.name == "solution-end"):
        faults.append("its solution is not closed: add `:::{solution-end}` after its last cell.")
    cells = [block for block in inside if isinstance(block, CodeCell)]
    if not cells or not ends_in_check(cells[-1], name):
        return [*faults, f'the last cell of its solution must end in the same check, `check("{name}", …)`.']
    said = printed_text(cells[-1]).splitlines()
    if not (said and said[-1].startswith("Right")):
        faults.append("the check in its solution does not say “Right”: correct the solution and run `make notebooks`.")
    return faults


def ends_in_check(cell: CodeCell, name: str) -> bool:
    """Whether a cell's last statement is the call of the check of that name."""
    try:
        body = ast.parse(python_source(cell.source)).body
    except SyntaxError:
        return False
    match body[-1:]:
        case [ast.Expr(value=ast.Call(func=ast.Name(id="check"), args=[ast.Constant(value=called), _]))]:
            return called == name
    return False


def printed_text(cell: CodeCell) -> str:
    """Return what a cell printed."""
    return "".join(output["text"] for output in cell.outputs if output["output_type"] == "stream")


# --- cells and figures -----------------------------------------------------------------------------------


def cell_complaints(page: Page) -> list[str]:
    """Say which cells are too long, or only import."""
    complaints = []
    for number, cell in enumerate(page.code_cells):
        where = f"{page.docname}, {cell.where}"
        lines = len(cell.source.splitlines())
        folded = bool(FOLDING_TAGS & set(cell.tags))
        if lines > FOLDED_CELL_LINES:
            complaints.append(f"{where}: {lines} lines: move code into lmlib, {FOLDED_CELL_LINES} are the most.")
        elif lines > OPEN_CELL_LINES and not folded:
            complaints.append(f"{where}: {lines} lines: split the cell, or fold it with the tag `hide-input`.")
        if number >= CELLS_FOR_IMPORTS and only_imports(cell):
            complaints.append(f"{where}: it only imports: put the imports into the first cells.")
    return complaints


def only_imports(cell: CodeCell) -> bool:
    """Whether a cell has statements, all of which are imports."""
    try:
        body = ast.parse(python_source(cell.source)).body
    except SyntaxError:
        return False
    return bool(body) and all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in body)


def is_figure(cell: CodeCell) -> bool:
    """Whether a cell draws: seen from its output, and in a page without stored outputs from its source."""
    data = [output.get("data", {}) for output in cell.outputs]
    drawn = any(kind.startswith("image/") for kinds in data for kind in kinds)
    return drawn or any("<Figure" in kinds.get("text/plain", "") for kinds in data) or "plt.show(" in cell.source


def figure_complaints(page: Page) -> list[str]:
    """Say which figures lack a caption, or an alternative text that says what is seen."""
    complaints = []
    for cell in page.code_cells:
        if is_figure(cell):
            alt, caption = cell.figure_option("image", "alt"), cell.figure_option("figure", "caption")
            complaints += described(f"{page.docname}, {cell.where}", alt, caption, "metadata mystnb.image.alt")
            if not caption:
                complaints.append(f"{page.docname}, {cell.where}: set the metadata mystnb.figure.caption.")
    for _, block in placed(page, Directive):
        if block.name in ("figure", "image"):
            caption = " ".join(plain(child) for child in block.children if isinstance(child, Text))
            complaints += described(f"{page.docname}, {block.where}", block.options.get("alt", ""), caption, "`:alt:`")
    return complaints


def described(where: str, alt: str, caption: str, setting: str) -> list[str]:
    """Say what is wrong with a figure's alternative text."""
    if len(alt.strip()) < SHORTEST_ALT:
        return [f"{where}: say in {setting} what is seen in the figure, in {SHORTEST_ALT} characters or more."]
    if alt.strip() == caption.strip():
        return [f"{where}: {setting} repeats the caption: say what is seen instead."]
    return []
