"""A parser for the English of captions: rules and word tables, no model, quick enough to run inside training.

Captions are plain: things with their attributes, what they do, where they are. The words are classified (`tags.py`)
and then joined from left to right in one pass. A noun phrase fills the first place that waits for it: of a preposition,
a verb, a conjunction, else it begins a clause. What was measured of it is in `docs/results/parsing.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.language.caption_words import C, WordClass
from saccade.language.parsing.clauses import PRESENTERS
from saccade.language.parsing.parser import Parse, Parser
from saccade.language.parsing.phrases import Phrases
from saccade.language.parsing.tags import PHRASE, VERBS

PUNCTUATION = (C.MARK, C.COMMA)
TAGS = {  # the universal tag of each class
    C.DETERMINER: "DET", C.OWNER: "PRON", C.NUMBER: "NUM", C.ADJECTIVE: "ADJ", C.NOUN: "NOUN", C.PLURAL: "NOUN",
    C.PRONOUN: "PRON", C.FINITE: "VERB", C.DOING: "VERB", C.DONE: "VERB", C.INFINITIVE: "VERB", C.AUXILIARY: "AUX",
    C.PREPOSITION: "ADP", C.FIXED: "ADP", C.CONJUNCTION: "CCONJ", C.SUBORDINATOR: "SCONJ", C.RELATIVE: "PRON",
    C.ADVERB: "ADV", C.TO: "PART", C.TO_INFINITIVE: "PART", C.THERE: "PRON", C.POSSESSIVE: "PART", C.COMMA: "PUNCT",
    C.MARK: "PUNCT", C.MATERIAL: "NOUN", C.S_FORM: "NOUN", C.NAMES_VERB: "NOUN", C.OTHER: "ADJ", C.UNKNOWN_S: "NOUN",
    C.BASE: "NOUN", C.ING: "VERB", C.PARTICIPLE: "VERB", C.PAST: "VERB",
}  # fmt: skip


class RuleParser(Parser):
    """The default parser: no dependency, the same answer everywhere."""

    name = "rules"

    def _parse(self, sentences: Sequence[tuple[str, ...]]) -> list[Parse]:
        return [_Sentence(tokens).parse() for tokens in sentences]


class _Sentence(Phrases):
    """One caption, read from left to right."""

    __slots__ = ()

    def parse(self) -> Parse:
        classes, place = self.classes, 0
        while place < self.count:
            kind = classes[place]
            if kind in PHRASE:
                place = self.add_phrase(place)
            elif kind is C.PREPOSITION:
                place = self._preposition(place)
            elif kind in VERBS or kind is C.PAST:
                self.add_verb(place, kind)
                place += 1
            elif kind is C.AUXILIARY:
                self.add_auxiliary(place)
                place += 1
            else:
                self._small(place, kind)
                place += 1
        return self._finish()

    # Prepositions and small words

    def _preposition(self, place: int) -> int:
        end = place + 1
        while end < self.count and self.classes[end] is C.FIXED:
            self.set(end, place, "fixed")
            end += 1
        if self.case >= 0:  # "up in the air"
            self._adverb(self.case)
            self.case = -1
        after = self.classes[end] if end < self.count else C.MARK
        if after in (C.DOING, C.INFINITIVE):  # "by jumping"
            self.waiting.append((place, "mark"))
        elif after in PHRASE or after in (C.PREPOSITION, C.MATERIAL, C.ADVERB):
            self.case = place
        else:
            self._adverb(place)
        return end

    def in_case(self, head: int) -> bool:
        """A noun after a preposition; whether it is only what something is made of, and nothing more will be said."""
        case, self.case = self.case, -1
        self.set(case, head, "case")
        word, noun, verb = self.words[case], self.noun, self.verb
        if self.copula >= 0:
            self.set_predicate(head)
            self.verb = -1
            return False
        if self.conjunction >= 0:
            self.set(self.conjunction, head, "cc")
            self.conjunction = -1
        if self.subject < 0 and self.predicate < 0 and verb < 0:
            if noun >= 0 and word == "of":
                self.set(head, noun, "nmod")
            else:
                self.fronted.append(head)
        elif word in ("in", "with") and noun == case - 1 and self.is_worn(head) and self.animate(noun):
            self.set(head, noun, "nmod")
        elif verb > noun:
            self.set(head, verb, "obl")
            self.open_object = False
            if word == "of" and self.words[verb] == "made":
                own = self.predicate if self.predicate >= 0 else verb
                self.verb = own if own != verb and self.classes[own] in VERBS else -1
                return True
        elif verb < 0 or word == "of" or self.words[verb] in PRESENTERS:
            self.set(head, noun, "nmod")
        else:
            self.set(head, verb, "obl")
        return False

    def _adverb(self, place: int) -> None:
        if self.copula >= 0 and self.copula == place - 1:
            self.set_predicate(place)
        elif self.verb >= 0:
            self.set(place, self.verb, "advmod")
        elif self.noun >= 0 and self.predicate >= 0:
            self.set(place, self.noun, "advmod")
        else:
            self.waiting.append((place, "advmod"))

    def _small(self, place: int, kind: WordClass) -> None:
        if kind is C.COMMA:
            self.comma = True
        elif kind is C.CONJUNCTION:
            if self.conjunction >= 0:
                self.set(self.conjunction, place, "dep")
            self.conjunction, self.open_object = place, False
        elif kind is C.ADVERB or kind is C.TO:
            self._adverb(place)
        elif kind is C.THERE:
            self.there = place
        elif kind is C.TO_INFINITIVE:
            self.waiting.append((place, "mark"))
        elif kind is C.NAMES_VERB:
            self.waiting.append((place, "compound"))
        elif kind is C.SUBORDINATOR:
            self._subordinate(place)
        elif kind is C.RELATIVE:
            self._relative(place)
        elif kind is C.POSSESSIVE and place:
            self.set(place, place - 1, "case")
        elif kind is C.MARK and self.words[place] in (".", ";", "!", "?", ":"):
            self._stop()

    def _subordinate(self, place: int) -> None:
        after = self.classes[place + 1] if place + 1 < self.count else C.MARK
        self.waiting.append((place, "mark"))
        if after in (C.DOING, C.DONE, C.INFINITIVE):  # "while holding"
            return
        self._stop()
        self.link = (self.main, "advcl")

    def _relative(self, place: int) -> None:
        if self.noun < 0:
            self.waiting.append((place, "dep"))
            return
        self.outer.append((self.subject, self.predicate, self.verb))
        self.begin((self.noun, "acl:relcl"))
        self.subject, self.comma = place, False

    def _stop(self) -> None:
        """The end of a clause; what follows hangs on the first predicate."""
        while self.outer:
            self.leave()
        if self.predicate < 0 and self.subject >= 0:
            self.settle(self.subject)
        if self.conjunction >= 0:
            self.waiting.append((self.conjunction, "cc"))
        self.conjunction = self.case = self.copula = -1
        self.comma = False
        self.begin((self.main, "parataxis"))

    def _finish(self) -> Parse:
        """Every word a head, exactly one root, no circles."""
        heads, labels = self.heads, self.labels
        while self.outer:
            if self.predicate < 0 and self.subject >= 0 and heads[self.subject] == -2:
                self.set(self.subject, self.noun, "dep")
            self.leave()
        if self.predicate < 0 and self.subject >= 0:
            self.settle(self.subject)
        if self.root < 0:
            free = [at for at in range(self.count) if heads[at] == -2] or [0]
            content = [at for at in (*self.fronted, *free) if self.classes[at] not in (*PUNCTUATION, C.CONJUNCTION)]
            self.root = (content or free)[0]
            self.set(self.root, -1, "root")
        root = self.root
        for at in range(self.count):
            if heads[at] == -2 or (heads[at] == -1 and at != root):
                other = "parataxis" if heads[at] == -1 else "dep"
                self.set(at, root, "punct" if self.classes[at] in PUNCTUATION else other)
        self._open_circles()
        return Parse(self.words, tuple(heads), tuple(labels), tuple([TAGS[kind] for kind in self.classes]))

    def _open_circles(self) -> None:
        """Words that only lead to each other (in what is no sentence) are led to the root."""
        heads, safe = self.heads, {self.root}
        for place in range(self.count):
            at = place
            way: list[int] = []
            while at not in safe:
                if at in way or at < 0:
                    self.set(way[-1], self.root, "dep")
                    break
                way.append(at)
                at = heads[at]
            safe.update(way)
