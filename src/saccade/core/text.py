"""Text from outside (file names, captions) made safe to show: on one line, in reading order, without commands; and
small numbers made readable."""

from __future__ import annotations

import unicodedata
from decimal import Decimal

LEAST_SHOWN = 1e-6  # a smaller probability is only said to be smaller

_JOINERS = "\u200c\u200d"  # zero-width: they shape letters and emoji, and hide nothing
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control, format, half of a pair, line and paragraph separators


def escaped(text: object) -> str:
    r"""The text with newlines, tabs, terminal and direction commands spelt out: `a\nb`, `\x1b[31m`, `\u202e`."""
    plain = str(text)
    if plain.isascii() and plain.isprintable():
        return plain
    return "".join(_spelt(char) if unicodedata.category(char) in _HIDDEN else char for char in plain)


def _spelt(char: str) -> str:
    return char if char in _JOINERS else char.encode("unicode_escape").decode("ascii")


def plain_number(value: float) -> str:
    """A probability by three digits, without an exponent: 0.453, 0.00000191, <0.000001."""
    return f"<{Decimal(str(LEAST_SHOWN)):f}" if value < LEAST_SHOWN else f"{Decimal(f'{value:.2e}'):f}"
