"""The form in which a model says what takes the place of a selection, and the way from there to an edit of a text.

The form: one fenced block with the info string `replacement`, anywhere in the last reply of the turn.

    ```replacement
    what takes the place of the whole selection
    ```

A fence is a line of three or more backticks or tildes, indented by at most three spaces; it is closed by a line of at least
as many of the same. The line break before the closing fence belongs to the fence; an empty block deletes the selection.
Blocks with another info string say nothing. No block, several, or one that is not closed: nothing is edited. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from refold_server.lsp.editor_edits import Change, EditRefused
from refold_server.lsp.text_positions import Splice

INFO: Final = "replacement"
"""The info string."""

FORMAT: Final = f"""\
Answer with what takes the place of the whole selection, in one fenced block with the info string `{INFO}`:

```{INFO}
new text
```

Write the new text exactly as it shall stand in the file, with its indentation, and nothing else in the block. If the text
itself has a line of three backticks, use a longer fence. An empty block deletes the selection. What you write outside of the
block is shown to the person and changes nothing. If nothing should be changed, say why and write no block."""
"""What the model is told of the form."""


def replacement_in(reply: str) -> str:
    """Give the text of the one block, its lines separated by `\\n`. Raises EditRefused."""
    found: list[str] = []
    fence, info, lines = "", "", list[str]()
    for line in reply.split("\n"):
        line = line.removesuffix("\r")
        if fence:
            closing = _CLOSING.fullmatch(line)
            if closing is None or not closing[1].startswith(fence):
                lines.append(line)
                continue
            if info == INFO:
                found.append("\n".join(lines))
            fence, lines = "", []
        elif opening := _OPENING.fullmatch(line):
            fence, info = opening[1], (opening[2].split() or [""])[0]
    if fence and info == INFO:
        raise EditRefused("the replacement in the reply is not closed, so it may be cut")
    if len(found) != 1:
        raise EditRefused("the reply has no replacement" if not found else f"the reply has {len(found)} replacements, not one")
    return found[0]


def fenced(text: str, info: str = "") -> str:
    """Give `text` as a block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{fence}{info}\n{text}{end}{fence}"


def fitted(replacement: str, selected: str, text: str) -> str:
    """Give a replacement as it stands in `text`: with its line breaks, and with one at the end where the selection had it."""
    if selected.endswith(("\n", "\r")) and replacement and not replacement.endswith("\n"):
        replacement += "\n"
    first = _BREAK.search(text)
    return replacement if first is None else replacement.replace("\n", first[0])


def located(text: str, selected: str, start: int) -> int:
    """Find the selection in a text that may have changed: where it was, else in the one place that has it.

    Raises EditRefused.
    """
    if text.startswith(selected, start):
        return start
    found = text.find(selected)
    if found < 0:
        raise EditRefused("the selected text was changed meanwhile")
    if text.find(selected, found + 1) >= 0:
        raise EditRefused("the document was changed meanwhile, and the selected text is in several places")
    return found


def change_of(replacement: str, selected: str, start: int) -> Change:
    """Give the change that puts a replacement in the place of a selection that once began at `start`."""

    def change(text: str) -> tuple[Splice, ...]:
        at = located(text, selected, start)
        return (Splice(at, at + len(selected), fitted(replacement, selected, text)),)

    return change


_OPENING: Final = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)")
_CLOSING: Final = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*")
_BREAK: Final = re.compile("\r\n|\n|\r")
