"""Parses made elsewhere: a CoNLL-U file (spaCy, Stanza, UDPipe) or JSON of CoreNLP as a parser.

A sentence is found by its letters, so it does not matter where the other tool cut it: heads are carried over to our
tokens. What the file does not hold is parsed by the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from saccade.errors import SaccadeError
from saccade.language.caption_words import BE
from saccade.language.parsing.conllu import ForeignSentence, read_conllu
from saccade.language.parsing.corenlp import read_corenlp
from saccade.language.parsing.parser import Parse, Parser
from saccade.language.parsing.rules import RuleParser
from saccade.language.parsing.universal import FOREIGN, universal
from saccade.language.tokenise import tokenise

ENDINGS = (".conllu", ".conll", ".json")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


class FileParser(Parser):
    """Looks sentences up; `found` and `missed` count those that were and were not in the file."""

    def __init__(self, path: Path | str) -> None:
        super().__init__()
        self.path = Path(path)
        self.name = f"file:{path}"
        self.found = self.missed = 0
        self._rules = RuleParser()
        self._sentences: dict[str, ForeignSentence] = {}
        suffix = self.path.suffix.lower()
        if suffix not in ENDINGS:
            raise SaccadeError(f"{path}: parses are read from files that end in {', '.join(ENDINGS)}")
        for sentence in read_corenlp(self.path) if suffix == ".json" else read_conllu(self.path):
            self._sentences.setdefault("".join(map(_letters, sentence.forms)), sentence)
        if not self._sentences:
            raise SaccadeError(f"{path} holds no sentences")

    def _parse(self, sentences: Sequence[tuple[str, ...]]) -> list[Parse]:
        return [self._look_up(tokens) for tokens in sentences]

    def _look_up(self, tokens: tuple[str, ...]) -> Parse:
        foreign = self._sentences.get("".join(map(_plain, tokens)))
        if foreign is None:
            self.missed += 1
            return self._rules.parse_tokens([tokens])[0]
        self.found += 1
        return align(tokens, foreign)


def _plain(token: str) -> str:
    return '"' if token in ("``", "''") else token


def _letters(form: str) -> str:
    """What our tokeniser would make of a word, run together."""
    return "".join(map(_plain, tokenise(_BRACKETS.get(form, form))))


def align(tokens: tuple[str, ...], foreign: ForeignSentence) -> Parse:
    """The foreign tree over our tokens, which have the same letters.

    Of several words of theirs in one of ours, the one nearest to the root counts; of one in several of ours, the first
    stands for it and the others hang on that.
    """
    theirs_at = _owners([_letters(form) for form in foreign.forms])
    ours_at = _owners([_plain(token) for token in tokens])
    depth = [_depth(foreign.heads, place) for place in range(len(foreign.forms))]
    chosen: list[int] = [-1] * len(tokens)  # the word of theirs each of ours stands for
    first: dict[int, int] = {}  # and the first of ours with letters of each of theirs
    for ours, theirs in zip(ours_at, theirs_at, strict=True):
        first.setdefault(theirs, ours)
        if chosen[ours] < 0 or depth[theirs] < depth[chosen[ours]]:
            chosen[ours] = theirs
    heads, labels = [0] * len(tokens), ["dep"] * len(tokens)
    roots: list[int] = []
    for ours, theirs in enumerate(chosen):
        if first[theirs] != ours:
            heads[ours] = first[theirs]
            continue
        above = foreign.heads[theirs]
        while above >= 0 and first.get(above, ours) == ours:  # inside the same token of ours
            above = foreign.heads[above]
        labels[ours] = foreign.labels[theirs]
        heads[ours] = first[above] if above >= 0 else -1
        if above < 0:
            roots.append(ours)
    for ours in roots[1:]:  # several trees in one caption: the later ones hang on the first
        heads[ours], labels[ours] = roots[0], "parataxis"
    tags = tuple(foreign.tags[theirs] for theirs in chosen)
    if not FOREIGN.isdisjoint(labels):
        heads, labels = universal(heads, labels, tags, [token in BE for token in tokens])
    return Parse(tokens, tuple(heads), tuple(labels), tags)


def _owners(words: Sequence[str]) -> list[int]:
    """Which word each letter belongs to."""
    return [place for place, word in enumerate(words) for _ in word]


def _depth(heads: Sequence[int], place: int) -> int:
    depth = 0
    while place >= 0:
        place, depth = heads[place], depth + 1
    return depth
