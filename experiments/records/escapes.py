"""Escape text of records where it is printed or written: one function for each format.

A record may come from a stranger: its names, settings and notes are any text. Readers of records
leave them as they are. Whoever writes a format escapes what it puts there, so that a name can add
no markup, no link, no formula and no command of a terminal. Usual names stay as they are.
"""

import html
import logging
import re

# Controls of terminals, changes of the direction of writing, and halves of surrogate pairs.
CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# In Markdown: emphasis outside of words; marks of code, of links and of math; tags and entities; a
# bar in a table; and at the beginning what would make a heading, a list, a quotation or a rule.
MARKS = re.compile(
    r"""[`*$|]|~(?=~)|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])|!(?=\[)|<(?=[A-Za-z/!?])
    |&(?=\#\w|\w+;)|\\(?![A-Za-z0-9 ])|^(?:\#|>|[-+](?=\s)|[-=](?=[-=]{2}))|^\d+(?=[.)]\s)""",
    re.VERBOSE,
)
LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "±": r"\(\pm\)",
} | {sign: f"\\{sign}" for sign in "{}$&#%_"}  # fmt: skip
FORMULA = ("=", "+", "-", "@")  # with which a spreadsheet's formula begins
# A sign alone, and numbers as our tables show them: `-333 ± 42 (3) to -328 / -163.5`, a tie `=4`.
NUMBERS = re.compile(
    r"[-+]?|[-+]?inf|[-+=]?[\d.,]+(?:e[-+]?\d+)?(?: (?:±|/|to|\(\d+\)|-?[\d.,]+))*"
)


def escape_terminal(text: str) -> str:
    """`text` in one line for a terminal, its control characters as Python writes them.

    Rich reads markup such as [red] in strings, and none in its `Text`.
    """
    return CONTROL.sub(lambda sign: sign[0].encode("unicode_escape").decode(), text)


class EscapingFormatter(logging.Formatter):
    """Formats lines of the log, whose messages name records, for a terminal and a file."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = "\n".join(map(escape_terminal, record.message.split("\n")))
        return super().formatMessage(record)


def escape_markdown(text: str) -> str:
    """`text` in one line of Markdown, in a table or outside, on GitHub, on the site and in HTML.

    Marks become character references, which no dialect of Markdown reads as marks.
    """
    line = _in_a_line(text).lstrip()
    return MARKS.sub(lambda mark: "".join(f"&#{ord(sign)};" for sign in mark[0]), line)


def escape_html(text: str) -> str:
    """`text` as the content or an attribute of an element."""
    return html.escape(_in_a_line(text), quote=True)


def escape_latex(text: str) -> str:
    """`text` in one line of LaTeX."""
    return "".join(LATEX.get(sign, sign) for sign in _in_a_line(text))


def escape_csv(text: str) -> str:
    """`text` of a cell, which a spreadsheet takes for text and never for a formula.

    Numbers stay as they are. Quotation marks and commas are the CSV writer's matter.
    """
    line = _in_a_line(text)
    is_formula = line.lstrip().startswith(FORMULA) and not NUMBERS.fullmatch(line)
    return f"'{line}" if is_formula else line


def _in_a_line(text: str) -> str:
    """`text` without breaks of lines; U+FFFD stands for other control characters."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"[\t\r\n]+", " ", text))
