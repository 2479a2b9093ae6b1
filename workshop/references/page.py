"""docs/references.md: tables of the cards, in a block of the page."""

from pathlib import Path
from typing import Any

from latticework.experiments.papers.docs_pages import replace_block
from latticework.models.references.catalogue import DEFINITIONS, read_card

PAGE = Path(__file__).resolve().parents[2] / "docs" / "references.md"


def write_page() -> None:
    PAGE.write_text(refresh(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def refresh(page: str) -> str:
    """The page with its tables made anew from the cards."""
    cards = {name: read_card(name) for name in DEFINITIONS}
    page = replace_block(page, "values", _values(cards))
    return replace_block(page, "cards", _definitions(cards))


def _values(cards: dict[str, Any]) -> str:
    """Values and methods, a row a target."""
    lines = [
        "| name | sites | log Z | mean log pi | its variance | other moments | by |"
        " largest difference | draws |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, card in cards.items():
        moments = dict(card["moments"])
        energy, variance = moments.pop("energy"), moments.pop("energy variance")
        others = "; ".join(f"{key} {entry['value']:.8g}" for key, entry in moments.items())
        log_z = card["log_z"]
        value = "not known" if log_z is None else f"{log_z['value']:.8f}"
        methods = energy["by"] if log_z is None else log_z["by"]
        cells = [
            f"`{name}`",
            str(card["sites"]),
            value,
            f"{energy['value']:.8g}",
            f"{variance['value']:.8g}",
            others or "·",
            ", ".join(methods),
            _difference(log_z),
            f"{card['draws']['count']:,}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _difference(log_z: dict[str, Any] | None) -> str:
    if log_z is None or log_z["difference"] is None:
        return "one method"
    return f"{log_z['difference']:.0e}"


def _definitions(cards: dict[str, Any]) -> str:
    """What each target is, and how its draws were made."""
    lines = [
        "| name | definition | draws | source and licence | remarks |",
        "|---|---|---|---|---|",
    ]
    for name, card in cards.items():
        remarks = [*card["notes"], card["one_method"]]
        cells = [
            f"`{name}`",
            card["definition"],
            card["draws"]["made"] or "none",
            f"{card['source']}; {card['licence']}",
            "; ".join(filter(None, remarks)) or "·",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
