"""Draw docs/pictures/house.svg: the rooms of the package, storey by storey.

python scripts/house_picture.py            draw it
python scripts/house_picture.py --check    only say whether it is up to date (exit code 1 if not)
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from saccade.core.files import write_text

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "house.svg"

# From the ground up, and on each storey from left to right: a room knows only what comes before it.
STOREYS: list[tuple[str, list[tuple[str, str, str]]]] = [
    ("#d7e3f4", [
        ("core", "errors, files,", "settings"),
        ("batch", "what passes", "between rooms"),
        ("ops", "hot operators,", "fast and exact"),
    ]),
    ("#dcefe0", [
        ("metrics", "figures", "of merit"),
        ("language", "words,", "parses"),
        ("world", "toys with", "known truth"),
        ("vision", "pictures", "→ regions"),
    ]),
    ("#fdf0cf", [("data", "readers of data sets, the store", ""), ("features", "pictures → extractor → store", "")]),
    ("#f9dfd2", [("nn", "blocks the papers share", ""), ("models", "one file per paper", "")]),
    ("#f3dbe8", [
        ("explain", "why this", "picture?"),
        ("decoding", "greedy, beam,", "sampling"),
        ("tasks", "a folder", "per task"),
        ("training", "the trainer,", "exact resume"),
    ]),
    ("#e4dcf2", [
        ("interop", "official", "checkpoints"),
        ("search", "large", "collections"),
        ("serve", "the service,", "its page"),
        ("lab", "claims,", "leaderboard"),
    ]),
]  # fmt: skip
ROOF = ("cli", "saccade VERB …")
WIDTH, STOREY, WALL, EAVES, ROOF_HEIGHT, GROUND = 560, 84, 40, 14, 104, 48
INK, LINE = "#22304a", "#8391a8"


def house() -> str:
    top = 12 + ROOF_HEIGHT
    height = top + STOREY * len(STOREYS) + GROUND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" text-anchor="middle">',
        "<title>The house: each folder of src/saccade is a room that knows only the rooms before it</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="12" fill="#ffffff"/>',
        f'<path d="M{EAVES} {top} L{WIDTH // 2} 12 L{WIDTH - EAVES} {top} Z" fill="#c6cfdf" stroke="{LINE}"/>',
        text(WIDTH // 2, top - 40, ROOF[0], 19, mono=True),
        text(WIDTH // 2, top - 18, ROOF[1], 13),
    ]
    for floor, (colour, rooms) in enumerate(STOREYS):
        y = top + STOREY * (len(STOREYS) - 1 - floor)
        side = (WIDTH - 2 * WALL) / len(rooms)
        for place, (name, *note) in enumerate(rooms):
            x = WALL + side * place
            middle = round(x + side / 2)
            parts.append(
                f'<rect x="{x:g}" y="{y}" width="{side:g}" height="{STOREY}" fill="{colour}" stroke="{LINE}"/>'
            )
            parts.append(text(middle, y + 30, name, 19, mono=True))
            parts += [text(middle, y + 51 + 16 * i, line, 13) for i, line in enumerate(note) if line]
    ground = height - GROUND
    parts.append(f'<path d="M10 {ground} H{WIDTH - 10}" stroke="{INK}" stroke-width="3"/>')
    parts.append(text(WIDTH // 2, ground + 29, "a room knows those below it and, on its floor, to its left", 14))
    x = WALL // 2
    parts.append(
        f'<path d="M{x} {ground - 12} V{top + 22} m-7 10 l7 -10 l7 10" fill="none" stroke="{INK}" stroke-width="2"/>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def text(x: int, y: int, words: str, size: int, mono: bool = False) -> str:
    style = ' font-family="ui-monospace, monospace" font-weight="700"' if mono else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{INK}"{style}>{escape(words)}</text>'


if __name__ == "__main__":
    wanted = house()
    if "--check" not in sys.argv[1:]:
        write_text(PICTURE, wanted)
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != wanted:
        sys.exit("docs/pictures/house.svg is out of date: run `make docs`")
