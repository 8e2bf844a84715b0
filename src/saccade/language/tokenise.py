"""Sentences to words, as the Penn Treebank splits them: "the dog's ball isn't red." → the dog 's ball is n't red .

`tokenise`: the vocabularies of the official matching code were built this way, so their words must come out the same
here: straight double quotes become `` and '', possessives and contractions stand alone, all in lower case. The one
tokeniser serves every language written with spaces: letters of any script with their accents are words, and French
elisions stand alone as English contractions do (l'eau → l' eau).

`ptb_tokenise`: as the official caption evaluation splits them, without punctuation marks. The official tools call a
Java program for this. The rules here say what that program does with some hundred thousand short strings, and the whole
was compared with it on captions (docs/metrics.md has the figures). At each place of a sentence every rule is tried and
the longest match is taken, the earlier rule of two as long.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from saccade.language.caption_words import WORDS, word_table


def _marks() -> str:
    """Accents and vowel signs that are characters of their own, as ranges of a regular expression."""
    kept = [c for c in range(0x300, 0x10000) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    starts = [c for c in kept if unicodedata.category(chr(c - 1)) not in ("Mn", "Mc")]
    ends = [c for c in kept if unicodedata.category(chr(c + 1)) not in ("Mn", "Mc")]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))


_LETTER = rf"[\w{_marks()}]"
_TOKEN = re.compile(
    rf"""{_LETTER}+ (?: (?: [-'.] | (?<=\d)[,:](?=\d) ) {_LETTER}+ )*  # t-shirt, l'homme, u.s, 4-wheeler, 1,000, 10:30
    | ' (?: s | m | d | n | t | ll | re | ve ) \b                      # written apart already: the dog 's ball
    | `` | '' | --+ | \.\.+
    | [^\w\s]""",
    re.VERBOSE,
)
_CLITIC = re.compile(r"(.+?)(n't|'(?:s|m|d|ll|re|ve))")
_ELISION = re.compile(  # before a vowel or h; but English knows the word d'oeuvres
    r"((?:[cdjlmnst]|(?:jus|lors|puis|quoi)?qu)')((?!oeuvres?$)[aeiouyàâäæéèêëîïôöœùûüÿh].*)"
)
_OPENING_QUOTE = re.compile(r'(?<![^\s(\[{<])"')

# What is written in several ways, in one; and what only tells a printer where to break a line, not at all.
_APOSTROPHES, _HYPHENS, _UNSEEN = "’ʼ´", "‐‑", "\u00ad\u200c\u200d\u200e\u200f\u2060\ufe0e\ufe0f\ufeff"
_ONE_WAY = str.maketrans(
    {**dict.fromkeys(_APOSTROPHES, "'"), **dict.fromkeys(_HYPHENS, "-"), **dict.fromkeys(_UNSEEN), "\u200b": " "}
)


def tokenise(text: str) -> list[str]:
    """Lower-cased words and punctuation marks. Scripts written without spaces are not cut into words."""
    text = unicodedata.normalize("NFC", text.translate(_ONE_WAY).lower()).replace("i̇", "i")  # the last: İ
    text = _OPENING_QUOTE.sub("``", text).replace('"', "''")
    tokens: list[str] = []
    for token in _TOKEN.findall(text):
        split = _CLITIC.fullmatch(token) or _ELISION.fullmatch(token)
        tokens += split.groups() if split else [token]
    return tokens


def words_only(text: str) -> str:
    """The sentence without its punctuation marks, as captioners learn it: caption metrics count none either."""
    return " ".join(token for token in tokenise(text) if any(map(str.isalnum, token)))


DROPPED = frozenset(  # the official list; brackets come out as -lrb- in lower case, so they escape it and stay
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)

# Shortened words keep their full stop: before anything, before a number only, or only if written with a capital.
_SHORTENED = word_table(WORDS["shortened"])
_BEFORE_NUMBERS = word_table("art arts ca fig figs no nos op pp prop")
_CAPITALISED = word_table("Ark Az Del Ill La Mass Miss Ore Pa Tex Wash")

_L = r"(?:[^\W\d_]|[\u0300-\u036f\u00ad])"  # a letter; accents of their own and soft hyphens belong to it
_A = rf"(?:{_L}|\d)"
_Q = r"(?:['\u2019]|&apos;)"
_WORD = rf"{_L}{_A}*(?:[.!?]{_L}{_A}*)*"
_NUMBER = r"[.,:]?\d+(?:[.,:]\d+)*"
_NO_LETTER = rf"(?!{_A})"
_PTB_CLITIC = rf"{_Q}(?:s|m|d|re|ve|ll)"


def _any(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(map(re.escape, words), key=len, reverse=True))})"


_RULES = [
    re.compile(rule)
    for rule in (
        # words that are two: the groups are the tokens
        rf"(?i:(can)(not)|(gon|wan)(na)|(got)(ta)|(gim|lem)(me)){_NO_LETTER}(?!{_PTB_CLITIC})",
        rf"(?i:('t)(is|was)){_NO_LETTER}",
        # words, and what may stand in them
        rf"{_WORD}",
        rf"(?i:([a-z]*[a-mo-z])(n{_Q}t{_L}*))",  # do|n't
        rf"(?i:n{_Q}t)",
        rf"(?:[dolDOL]{_Q}{_A})?{_A}+(?:-(?:[dolDOL]{_Q}{_A})?{_A}+)*",  # 5th, d'avant-garde
        rf"{_A}[\w.,]{{0,99}}(?<!_)(?:[-\u2010\u2011_]{_A}+)+",  # t-shirt, 3.5-mile, a_b
        r"[a-zA-Z0-9]+(?:-[a-zA-Z]+)*(?:/[a-zA-Z0-9]+(?:-[a-zA-Z]+)*){1,2}",  # and/or
        r"[A-Z]+(?:(?:&amp;|[+&])[A-Z]+)+",
        # apostrophes
        rf"(?:[dlonA-HJ-XZ]{_Q}{_L}{{2,}}|(?:{_L}*[aeiou]|{_L}+y){_Q}[aeiouA-Z]{_L}*)",  # o'reilly, ma'am
        rf"(?i:c'mon|cap'n|c'est|s'mores|li'l|ev'ry){_NO_LETTER}",
        rf"(?i:[djl]{_Q}|y{_Q}(?={_L})|(?:ol|dunkin){_Q})",
        rf"(?i:{_PTB_CLITIC})(?!{_L})",
        rf"(?i:{_Q}(?:em|till?|n{_Q}|(?:cause|n){_NO_LETTER}))",
        rf"{_Q}(?:[2-9]0s|\d\d(?![\w:/%.,-]))",  # '90s
        # full stops
        rf"(?:(?i:{_any(_SHORTENED)})|{_any(_CAPITALISED)}|{_any(map(str.upper, _CAPITALISED))})\.",
        rf"(?i:{_any(_BEFORE_NUMBERS)})\.(?=\s*\d)",
        rf"{_L}(?:\.{_L})*\.(?!{_L})",  # a.m., plan b.
        rf"{_WORD}\.(?=[,;:])",
        # numbers
        rf"[-+]?{_NUMBER}",
        r"(?:\d{1,4}[ -])?\d{1,4}/\d{1,4}",  # 3 1/2 is one token, with a space that does not break
        r"\(\d{3}\) ?\d{3}-\d{4}",
        # addresses
        r"https?://[\w./?&=%#~:+-]*[\w/]",
        r"www\.(?:[\w-]+\.)+[a-zA-Z]{2,4}(?:/[\w./?&=%#~:+-]*[\w/])?",
        r"[a-zA-Z0-9][\w.%+!?'-]{0,99}@\w[^\s\"<>|(){}]*[^\s\"<>|(){}.]",
        r"[@#][a-zA-Z_]\w*",
        r"</?[a-zA-Z!?][^<>\r\n]*>",
        # what is no word
        r"&(?:amp|lt|gt|quot|nbsp|mdash|ndash);",
        r"[:;=][-o*']?[()DPOdp|@](?![a-zA-Z0-9])|\^_\^|-_-",  # faces
        r"\.\.\.+|\.(?:[ \u00a0]\.){2,}|\u2026",
        r"-{2,}|[\u2013\u2014\u2015]",
        r"[!?]+|\*+|_+|#+|@+|<<|>>|''|``",
        r"[A-Z]*\$",
        r"-(?:LRB|RRB|LCB|RCB|LSB|RSB)-",
        r"[^\s\w\u200b-\u200f\u2060\ufeff\ufffd\U00010000-\U0010ffff]|[\u00b2\u00b3\u00b9]",  # no emoji
    )
]
_PLAIN = re.compile(r"(?<!\S)[a-zA-Z]+(?!\S)")
_TWO = {"cannot", "gonna", "wanna", "gotta", "gimme", "lemme"}
_SAME = {  # as the tokens are written
    "(": "-lrb-",
    ")": "-rrb-",
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
    "&apos;": "'",
    "\u00a3": "#",
    "\u20ac": "$",
    "\u00a2": "cents",
    "\u00bd": "1/2",
    "\u00bc": "1/4",
    "\u00be": "3/4",
    "\u2153": "1/3",
    "\u2154": "2/3",
    "\u00ad": "",
}
_BRACKETS = {"[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_OTHER_WRITING = re.compile("|".join(map(re.escape, _SAME)))
_CLITIC_ALONE = re.compile(rf"(?i:{_PTB_CLITIC}|n{_Q}t)")
_MARKS = {  # that are dropped
    *"\"'`\u2018\u2019\u201b\u201c\u201d\u00ab\u00bb\u2039\u203a\u2026\u2013\u2014\u2015",
    *("&quot;", "&nbsp;", "&mdash;", "&ndash;"),
}


def ptb_tokenise(text: str) -> list[str]:
    """Lower-cased Penn Treebank tokens without the punctuation that the official evaluation drops."""
    tokens: list[str] = []
    place, end = 0, len(text)
    while place < end:
        plain = _PLAIN.match(text, place)
        if plain and plain.group().lower() not in _TWO:
            tokens.append(plain.group().lower())
            place = plain.end() + 1
            continue
        if text[place].isspace():
            place += 1
            continue
        found = max((match for rule in _RULES if (match := rule.match(text, place))), key=re.Match.end, default=None)
        if found is None or found.end() == place:  # a character that is in no token
            place += 1
            continue
        pieces = [piece for piece in found.groups() if piece] or [found.group()]
        tokens += [token for piece in pieces if (token := _written(piece))]
        place = found.end()
    return tokens


def _written(piece: str) -> str:
    """A token as it stands in the result; nothing for one that is dropped."""
    if piece in _MARKS or piece in DROPPED or re.fullmatch(r"--+|[. \u00a0]{3,}", piece):
        return ""
    if piece in _BRACKETS:
        return _BRACKETS[piece]
    if _CLITIC_ALONE.fullmatch(piece):
        piece = piece.replace("\u2019", "'")
    token = _OTHER_WRITING.sub(lambda found: _SAME[found.group()], piece).lower()
    return token.replace(" ", "\u00a0")
