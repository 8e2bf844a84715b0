from __future__ import annotations

import pytest

from saccade.core.text import escaped, plain_number


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


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.0, "1.00"), (0.4532, "0.453"), (0.00045, "0.000450"), (1.906e-6, "0.00000191"), (0, "<0.000001")],
)
def test_small_numbers_have_no_exponent(value: float, shown: str) -> None:
    assert plain_number(value) == shown
