from __future__ import annotations

import pytest

from saccade.core.text import escaped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a photo.jpg", "a photo.jpg"),
        ("two\nlines\tand\rmore", "two\\nlines\\tand\\rmore"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("gpj.\u202etxt", "gpj.\\u202etxt"),  # read from right to left it would end in .jpg
        ("line\u2028break", "line\\u2028break"),
        ("bad\udcff", "bad\\udcff"),  # a byte of a file name that is no UTF-8
        ("红 שלום 👩‍👧 می‌خواهم", "红 שלום 👩‍👧 می‌خواهم"),  # with the joiners that they need
    ],
)
def test_what_would_act_on_a_terminal_is_spelt_out(text: str, shown: str) -> None:
    assert escaped(text) == shown
    assert escaped(escaped(text)) == shown
