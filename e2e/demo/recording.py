"""A recording of the demo as one SVG that moves: what was on the screen at the moments that matter, drawn by rich.

make demo ARGS="--record docs/pictures/demo.svg"
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.text import Text

from e2e.demo.board import Board
from e2e.demo.grid import picture

COLUMNS: Final = 100
LINES: Final = 24
"""Of every picture: a window that grows and shrinks draws the eye away from what happens in it."""
SECONDS_SHOWN: Final = 2.2
"""How long each moment stays: long enough to read one line and see which node changed."""
LAST_SHOWN: Final = 4.0
_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""A picture in a page may load nothing: the reader's own monospaced font is taken."""
_SIZE: Final = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


class Moment(NamedTuple):
    """What was on the screen, `seconds` after the demo began, while it was `doing` something."""

    seconds: float
    doing: str
    board: Board


class Recording:
    """Keeps every picture that differs from the one before."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def add_moment(self, seconds: float, doing: str, board: Board) -> None:
        """Keep a picture once there is a training in it."""
        if board.nodes and board.step:
            self.moments.append(Moment(seconds, doing, board))

    def write(self, path: Path, last: str) -> None:
        """Write the recording; `last` is the text of its last picture."""
        chosen = chosen_moments(self.moments)
        pictures = [_screen(each.seconds, picture(each.board, f"{each.doing} …")) for each in chosen]
        pictures.append(Group(Text(last)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            moving_picture([_drawn(each, number) for number, each in enumerate(pictures)]), encoding="utf-8"
        )


def chosen_moments(moments: Sequence[Moment]) -> list[Moment]:
    """Return of each thing that the demo does the moment in which the training stood, and the last one."""
    chosen: list[Moment] = []
    for doing in dict.fromkeys(each.doing for each in moments):
        of_this = [each for each in moments if each.doing == doing]
        stands = [each for each in of_this if each.board.state not in {"Running", "Complete", ""}]
        chosen += [_most_telling(stands)] if stands else []
        chosen += [of_this[-1]] if of_this[-1] not in chosen else []
    return chosen


def _most_telling(stands: Sequence[Moment]) -> Moment:
    """Return the moment in which ranks do most different things: some are lost, others wait or start."""
    kinds = [len({rank.does for rank in each.board.ranks.values()}) for each in stands]
    most = [each for each, number in zip(stands, kinds, strict=True) if number == max(kinds)]
    return most[len(most) // 2]


def _screen(seconds: float, shown: RenderableType) -> RenderableType:
    return Group(Text(f"{seconds:6.1f} s   make demo", style="dim"), Text(), shown)


def _drawn(shown: RenderableType, number: int) -> str:
    console = Console(
        record=True,
        file=io.StringIO(),
        width=COLUMNS,
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    console.print(shown)
    console.print("\n" * (LINES - 1 - len(console.render_lines(shown))))
    drawn = _FONTS.sub("", console.export_svg(title="make demo", unique_id=f"moment{number}"))
    # Without a size of its own a picture in a picture is stretched to the other's.
    return _SIZE.sub(r'width="\1" height="\2" viewBox="0 0 \1 \2"', drawn, count=1)


def moving_picture(pictures: Sequence[str]) -> str:
    """Return one SVG that shows others one after the other, for ever; where nothing moves, the last one."""
    sizes = [tuple(map(float, found.groups())) for each in pictures if (found := _SIZE.search(each))]
    width, height = max(size[0] for size in sizes), max(size[1] for size in sizes)
    whole = SECONDS_SHOWN * (len(pictures) - 1) + LAST_SHOWN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<style>{''.join(_rules(len(pictures), whole))}</style>",
            f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#292929"/>',
            *(f'<g class="moment m{number}">\n{each}\n</g>' for number, each in enumerate(pictures)),
            "</svg>\n",
        ]
    )


def _rules(number: int, whole: float) -> Iterator[str]:
    yield "text{font-family:ui-monospace,Menlo,Consolas,monospace}"
    share = 100 * SECONDS_SHOWN / whole
    for place in range(number):
        begin, end = share * place, 100.0 if place == number - 1 else share * (place + 1)
        hidden = 1 if place == number - 1 else 0
        yield f".m{place}{{opacity:{hidden};animation:k{place} {whole:.1f}s infinite step-end}}"
        yield f"@keyframes k{place}{{0%{{opacity:{int(place == 0)}}}{begin:.2f}%{{opacity:1}}"
        yield f"{end:.2f}%{{opacity:0}}100%{{opacity:0}}}}" if end < 100 else "}"
