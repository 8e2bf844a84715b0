"""Which font has which letter, and text drawn with it.

Plain text is set in Aileron, which comes with Pillow, or in DejaVu Sans, which comes with matplotlib and has Greek,
Cyrillic, Arabic and Hebrew too. What both lack is taken letter by letter from Noto Sans CJK (Chinese, Japanese, Korean;
the extra `fonts`) and from the system's fonts. A letter that none has is drawn as � and remembered in `missing`.

Text that is read from right to left is put into visual order, and its letters joined, by Pillow's raqm. Where Pillow
comes without raqm, letters stand in visual order but unjoined.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, features

AILERON = frozenset(map(chr, range(32, 127))) | frozenset("°±·«»‘’“”…")  # what Pillow's own face covers
DEJAVU = str(
    Path(getattr(find_spec("matplotlib"), "origin", "")).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
)
NOTO_CJK = "noto_cjk_sans_otc"  # the package of the extra `fonts`
EMOJI, ABOVE_LATIN = 0x1F000, 0x2000  # where emoji begin; fonts of emoji have digits too, which are no digits for text
BITMAP = 109  # the one size of Noto Color Emoji
UNKNOWN = "\ufffd"
MARKS = {"Mn", "Me", "Mc", "Cf", "Sk"}  # what belongs to the letter before it: accents, joiners, tones of skin
PLAIN = ("sans", "regular")  # preferred among the system's fonts …
FANCY = ("bold", "italic", "oblique", "light", "thin", "black", "mono", "serif", "condensed", "display")  # … to these

missing: set[str] = set()  # letters that were drawn as �


def missing_note() -> str:
    """What was drawn as � since this was last asked, and what to install; nothing if every letter was found."""
    if not missing:
        return ""
    some = " ".join(sorted(missing)[:10]) + (" …" if len(missing) > 10 else "")
    missing.clear()
    return (
        f"no font here has {some}: drawn as {UNKNOWN}; `pip install saccade[fonts]` brings Chinese, Japanese and "
        "Korean, Debian's fonts-noto-core and fonts-noto-color-emoji the rest"
    )


class Run(NamedTuple):
    """Letters of one font; no file: Aileron."""

    text: str
    file: str | None


def length(text: str, size: int) -> float:
    """The width of a text in pixels."""
    return sum(_run_length(run, size) for run in _runs(text))


def draw_text(
    pen: ImageDraw.ImageDraw, at: tuple[float, float], text: str, size: int, tone: str, anchor: str = "ls"
) -> None:
    """Draw one line; the left end of its baseline, or what `anchor` names (as in Pillow), is at `at`."""
    missing.update(char for char in text if char not in AILERON and not _is_mark(char) and _file_of(char) is None)
    runs, (x, y) = _runs(text), at
    if len(runs) == 1 and (face := _face(runs[0].file, size)) is not None:
        pen.text(at, runs[0].text, tone, face, anchor=anchor, embedded_color=_is_emoji(runs[0].file))
        return
    x -= length(text, size) * {"l": 0.0, "m": 0.5, "r": 1.0}[anchor[0]]
    if anchor[1] == "m":
        ascent, descent = _face_of(DEJAVU, size).getmetrics()
        y += (ascent - descent) / 2
    for run in runs:
        if (face := _face(run.file, size)) is not None:
            pen.text((x, y), run.text, tone, face, anchor="ls", embedded_color=_is_emoji(run.file))
        elif run.file is not None:
            _paste_bitmaps(pen, run, size, (x, y))
        x += _run_length(run, size)


def visual_order(directions: Sequence[str], base: str = "") -> list[int]:
    """Positions, from left to right, of parts that are read in order.

    A part is L, R or neutral (empty). `base` is the line's direction, or else the first part's that is not neutral.
    Parts of one direction that stand together keep their own order in it; neutral ones go with both neighbours where
    these agree, or else with the line.
    """
    base = base or next(filter(None, directions), "L")
    before, after = base, base
    left, right = [], []
    for direction, other in zip(directions, reversed(directions), strict=True):
        left.append(before := direction or before)
        right.append(after := other or after)
    taken = [one if one == other else base for one, other in zip(left, reversed(right), strict=True)]
    groups = [
        list(group)[:: -1 if kind == "R" else 1] for kind, group in groupby(range(len(taken)), lambda i: taken[i])
    ]
    return [i for group in groups[:: -1 if base == "R" else 1] for i in group]


def direction_of(text: str) -> str:
    """L or R by its first letter that has a direction; nothing for punctuation."""
    kinds = (unicodedata.bidirectional(char) for char in text)
    return next(("L" if kind in ("L", "EN") else "R" for kind in kinds if kind in ("L", "R", "AL", "EN")), "")


@lru_cache(maxsize=4096)
def _runs(text: str) -> tuple[Run, ...]:
    """From left to right."""
    if AILERON.issuperset(text):
        return (Run(text, None),)
    letters = _letters(DEJAVU)
    if all(ord(char) in letters for char in text):
        return (_ordered(Run(text, DEJAVU)),)
    runs: list[Run] = []
    for char in text:
        file = runs[-1].file if runs else None
        here = file is not None and ord(char) in _letters(file)
        if runs and _is_mark(char):
            if not here:  # a tone of skin for an emoji without it
                continue
        elif not here or char in AILERON:
            file = _file_of(char)
            char, file = (char, file) if file is not None else (UNKNOWN, DEJAVU)
        if runs and runs[-1].file == file:
            runs[-1] = Run(runs[-1].text + char, file)
        else:
            runs.append(Run(char, file))
    return tuple(_ordered(runs[i]) for i in visual_order([direction_of(run.text) for run in runs]))


@cache
def _has_raqm() -> bool:
    return bool(features.check("raqm"))


def _ordered(run: Run) -> Run:
    if _has_raqm() or all(direction_of(char) != "R" for char in run.text):
        return run
    order = visual_order([direction_of(char) for char in run.text])
    return Run("".join(run.text[i] for i in order), run.file)


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in MARKS


def _is_emoji(file: str | None) -> bool:
    return file is not None and "emoji" in Path(file).name.lower()


@cache
def _file_of(char: str) -> str | None:
    """The first font that has a letter: emoji are looked for among fonts of emoji first."""
    files = _files()
    if ord(char) >= EMOJI:
        files = tuple(sorted(files, key=lambda file: not _is_emoji(file)))
    return next((file for file in files if ord(char) in _letters(file)), None)


@cache
def _files() -> tuple[str, ...]:
    """DejaVu Sans, Noto Sans CJK if its package is here, then the system's fonts, plain ones first."""
    package = find_spec(NOTO_CJK)
    packaged = sorted(Path(place) for place in package.submodule_search_locations or ()) if package else []
    ours = [DEJAVU, *(str(file) for folder in packaged for file in folder.glob("*.tt[cf]"))]
    found = (file for folder in font_folders() for file in folder.rglob("*.[to]t[cf]"))
    return tuple(dict.fromkeys([*ours, *map(str, sorted(found, key=_fanciness))]))


def font_folders() -> list[Path]:
    """Where Linux, macOS and Windows keep fonts."""
    home, data = Path.home(), os.environ.get("XDG_DATA_HOME")
    folders = [Path(data) / "fonts"] if data else []
    folders += [home / ".fonts", home / ".local/share/fonts", Path("/usr/local/share/fonts"), Path("/usr/share/fonts")]
    if sys.platform == "darwin":
        folders = [home / "Library/Fonts", Path("/Library/Fonts"), Path("/System/Library/Fonts")]
    elif sys.platform == "win32":
        folders = [Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts"]
    return folders


def _fanciness(file: Path) -> tuple[int, int, str]:
    name = file.name.lower()
    return sum(word in name for word in FANCY), -sum(word in name for word in PLAIN), name


@cache
def _letters(file: str) -> frozenset[int]:
    """The code points that a font has a glyph for; none if it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        found = frozenset(FT2Font(file).get_charmap())
    except RuntimeError:  # it has bitmaps alone
        from fontTools.ttLib import TTFont, TTLibError

        try:
            with TTFont(file, lazy=True, fontNumber=0) as font:
                found = frozenset(font.getBestCmap() or ())
        except (TTLibError, OSError):
            return frozenset()
    except OSError:
        return frozenset()
    return frozenset(code for code in found if code >= ABOVE_LATIN) if _is_emoji(file) else found


def _face_of(file: str | None, size: int) -> ImageFont.FreeTypeFont:
    face = _face(file, size)
    assert face is not None
    return face


@lru_cache(maxsize=128)
def _face(file: str | None, size: int) -> ImageFont.FreeTypeFont | None:
    """A font at a size; None if it has only another one."""
    if file is None:
        face = ImageFont.load_default(size)  # Aileron, a clear grotesque
        return face if isinstance(face, ImageFont.FreeTypeFont) else ImageFont.truetype(DEJAVU, size)
    try:
        return ImageFont.truetype(file, size)
    except OSError:
        return None


def _run_length(run: Run, size: int) -> float:
    face = _face(run.file, size)
    if face is None:
        return _face_of(run.file, BITMAP).getlength(run.text) * size / BITMAP
    return face.getlength(run.text)


def _paste_bitmaps(pen: ImageDraw.ImageDraw, run: Run, size: int, at: tuple[float, float]) -> None:
    """Emoji that come in one size, made smaller; the line's baseline begins at `at`."""
    face = _face_of(run.file, BITMAP)
    left, top, right, bottom = map(round, face.getbbox(run.text, anchor="ls"))
    large = Image.new("RGBA", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(large).text((-left, -top), run.text, "black", face, anchor="ls", embedded_color=True)
    scale = size / BITMAP
    small = large.resize((max(1, round(large.width * scale)), max(1, round(large.height * scale))))
    pen._image.paste(small, (round(at[0] + left * scale), round(at[1] + top * scale)), small)
