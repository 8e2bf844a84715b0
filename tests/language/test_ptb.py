"""Captions are split as the official evaluation splits them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saccade.language.tokenise import DROPPED, ptb_tokenise

SEEN = {  # what the official program makes of them, its punctuation dropped
    "A man, in a T-shirt; he smiles!": "a man in a t-shirt he smiles",
    "the dog's ball isn't red.": "the dog 's ball is n't red",
    "I'd've said they can't, won't and don't": "i 'd 've said they ca n't wo n't and do n't",
    "he cannot go; I'm gonna, we gotta, you wanna": "he can not go i 'm gon na we got ta you wan na",
    "'Twas y'all's rock'n'roll in the '90s": "'t was y' all 's rock 'n' roll in the '90s",
    "O'Neil at 10 o'clock, ma'am": "o'neil at 10 o'clock ma'am",
    "the boys' dog at Dunkin' Donuts": "the boys dog at dunkin' donuts",
    "\"double\" and 'single' “curly” ‘quotes’": "double and single curly quotes",
    "Mr. and Mrs. Smith of St. Louis vs. the U.S. at 5:30 p.m.": (
        "mr. and mrs. smith of st. louis vs. the u.s. at 5:30 p.m."
    ),
    "train no. 5, but no. five": "train no. 5 but no five",
    "one on the end. of a Ph.D. etc.": "one on the end of a ph.d. etc.",
    "it ends.It begins": "it ends.it begins",
    "a dog., a cat": "a dog. a cat",  # officially so
    "(very) tall [sic] {x}": "-lrb- very -rrb- tall -lsb- sic -rsb- -lcb- x -rcb-",
    "black - and -- white --- photo... or … so": "black and white photo or so",
    "1,000 dogs, 3.5 boxes, 50% off, $5.00, #1": "1,000 dogs 3.5 boxes 50 % off $ 5.00 # 1",
    "a 2nd-grade class, a 3-year-old": "a 2nd-grade class a 3-year-old",
    "and/or, he/she's, a / b, a/b/c/d": "and/or he/she 's a / b a/b/c / d",
    "R&B, AT&T, black&white, this & that": "r&b at&t black & white this & that",
    "10:30am at 6'2\" by 5x7": "10:30 am at 6 2 by 5x7",
    "wow!! really?! yes!": "wow !! really ?! yes",
    "www.example.com, me@example.com": "www.example.com me@example.com",
    "caf\u00e9 na\u00efve \u5317\u4eac": "caf\u00e9 na\u00efve \u5317\u4eac",
    "dog\u2019s don\u2019t": "dog 's do n't",
    "a dog \U0001f600 runs": "a dog runs",
    "smile :) x": "smile :-rrb- x",
}


@pytest.mark.parametrize("text", SEEN)
def test_tokens_are_the_official_ones(text: str) -> None:
    assert " ".join(ptb_tokenise(text)) == SEEN[text]


def test_a_number_with_a_fraction_is_one_token() -> None:
    assert ptb_tokenise("3 1/2 cups") == ["3\u00a01/2", "cups"]


@pytest.mark.parametrize("name", ["toy", "fakecap"])
def test_the_golden_sentences_come_out_the_same(golden: Path, name: str) -> None:
    raw, official = (
        json.loads((golden / "caption_metrics" / f"{name}_{part}.json").read_text(encoding="utf-8"))
        for part in ("captions", "tokenized")
    )
    for image, text in raw["candidates"].items():
        assert " ".join(ptb_tokenise(text)) == official["candidates"][image]
        assert [" ".join(ptb_tokenise(t)) for t in raw["references"][image]] == official["references"][image]


@given(st.text(alphabet=st.sampled_from("aéN5 .,'’-/&<>@:()!\"n't\n\t$…"), max_size=30) | st.text(max_size=30))
@example("<")
@example("\x00 \x85 \ud800")
def test_any_text_gives_words_and_nothing_that_is_dropped(text: str) -> None:
    tokens = ptb_tokenise(text)
    assert not DROPPED & set(tokens)
    assert all(token and " " not in token and "\n" not in token for token in tokens)


def test_words_between_blanks_do_not_depend_on_the_case_or_the_blanks() -> None:
    assert ptb_tokenise("  A Dog\truns \n fast ") == ptb_tokenise("a dog runs fast") == ["a", "dog", "runs", "fast"]
