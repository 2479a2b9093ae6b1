"""Write the table of docs/gallery/README.md: lines of a problem before and after.

python -m workshop.shorter

It counts the cells `# %% before: NAME` and `# %% after: NAME` of docs/gallery/shorter.py, without
blank lines and comments.
"""

from latticework.experiments.papers.docs_blocks import replace_block
from workshop.notebooks import GALLERY, Cell, read_cells

PAGE = GALLERY / "README.md"


def count_lines(cell: Cell) -> int:
    """The lines of code of a cell."""
    lines = [line.strip() for line in cell.source.splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def table() -> str:
    """The table in Markdown, a row for each problem."""
    counts: dict[str, dict[str, int]] = {}
    for cell in read_cells(GALLERY / "shorter.py"):
        side, separator, name = cell.title.partition(": ")
        if separator:
            counts.setdefault(name, {})[side] = count_lines(cell)
    rows = ["| problem | lines before | after |", "|---|---|---|"]
    for name, lines in counts.items():
        rows.append(f"| [{name}.py]({name}.py) | {lines['before']} | {lines['after']} |")
    return "\n".join(rows)


def main() -> None:
    PAGE.write_text(replace_block(PAGE.read_text(), "lines", table()))
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
