"""Words of captions in their base form: dogs → dog, riding and rode → ride."""

from __future__ import annotations

from functools import cache

from saccade.language.adjectives import SPELLINGS
from saccade.language.caption_words import BE, HAVE, VERB_STEMS, forms
from saccade.language.phrases import singular

_IRREGULAR = (  # base form: past, participle
    {"begin": "began begun", "bite": "bit bitten", "blow": "blew blown", "break": "broke broken", "bind": "bound"}
    | {"bring": "brought", "build": "built", "buy": "bought", "catch": "caught", "choose": "chose chosen"}
    | {"come": "came", "dig": "dug", "do": "did done does", "draw": "drew drawn", "drink": "drank drunk"}
    | {"drive": "drove driven", "eat": "ate eaten", "fall": "fell fallen", "feed": "fed", "fight": "fought"}
    | {"find": "found", "fly": "flew flown", "freeze": "froze frozen", "get": "got gotten", "give": "gave given"}
    | {"go": "went gone goes", "grow": "grew grown", "hang": "hung", "hold": "held", "know": "knew known"}
    | {"kneel": "knelt", "lead": "led", "leap": "leapt", "leave": "left", "lie": "lay lain laying", "light": "lit"}
    | {"lose": "lost", "make": "made", "meet": "met", "ride": "rode ridden", "run": "ran", "say": "said"}
    | {"see": "saw seen", "seek": "sought", "send": "sent", "sew": "sewn", "shake": "shook shaken", "shoot": "shot"}
    | {"show": "shown", "sing": "sang sung", "sink": "sank sunk", "sit": "sat", "sleep": "slept", "slide": "slid"}
    | {"speak": "spoke spoken", "spin": "spun", "spring": "sprang sprung", "stand": "stood", "steal": "stole stolen"}
    | {"stick": "stuck", "strike": "struck", "sweep": "swept", "swim": "swam swum", "swing": "swung"}
    | {"take": "took taken", "teach": "taught", "tear": "tore torn", "tell": "told", "think": "thought"}
    | {"throw": "threw thrown", "wear": "wore worn", "weave": "wove woven", "win": "won", "write": "wrote written"}
)


def lemma(word: str, tag: str) -> str:
    """The base form of a word, by its part of speech (NOUN, VERB …) as parses give it."""
    if tag in ("NOUN", "PROPN"):
        return singular(word)
    if tag in ("VERB", "AUX"):
        return base_form(word)
    return SPELLINGS.get(word, word)


def base_form(word: str) -> str:
    """Of a verb; of a word that is no known form of one, the word."""
    return _bases().get(word, word)


@cache
def _bases() -> dict[str, str]:
    table: dict[str, str] = {}
    for base in sorted(VERB_STEMS.split(), key=len):
        for form in (form for kind in forms(base) for form in kind):
            table.setdefault(form, base)
    table.update({form: base for base, found in _IRREGULAR.items() for form in found.split()})
    return table | dict.fromkeys(BE, "be") | dict.fromkeys(HAVE, "have")
