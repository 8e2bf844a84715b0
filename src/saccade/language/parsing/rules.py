"""A parser for the English of captions: rules and word tables, no model, quick enough to run inside training.

Captions are plain: things with their attributes, what they do, where they are. The words are classified (`tags.py`)
and then joined from left to right in one pass. A noun phrase fills the first place that waits for it: of a preposition,
a verb, a conjunction, else it begins a clause. What was measured of it is in `docs/results/parsing.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.language import caption_words as tables
from saccade.language.caption_words import C, WordClass, word_pairs
from saccade.language.parsing.clauses import PRESENTERS, Clauses
from saccade.language.parsing.parser import Parse, Parser
from saccade.language.parsing.tags import BREAKS, NOUNS, PHRASE, SPECIFIERS, VERBS

_BEFORE_NOUN = {
    C.DETERMINER: "det", C.OWNER: "nmod:poss", C.NUMBER: "nummod", C.ADJECTIVE: "amod", C.NOUN: "compound",
    C.PLURAL: "compound",
}  # fmt: skip
PUNCTUATION = (C.MARK, C.COMMA)
TAGS = {WordClass[name]: tag for name, tag in word_pairs(tables.WORDS["universal_tags"]).items()}


class RuleParser(Parser):
    """The default parser: no dependency, the same answer everywhere."""

    name = "rules"

    def _parse(self, sentences: Sequence[tuple[str, ...]]) -> list[Parse]:
        return [_Sentence(tokens).parse() for tokens in sentences]


class _Sentence(Clauses):
    """One caption, read from left to right."""

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

    # Noun phrases

    def add_phrase(self, start: int) -> int:
        """Words up to the noun they belong to; which noun, and what for, is decided in `_place`."""
        classes, count = self.classes, self.count
        if classes[start] is C.PRONOUN:
            self._place(start)
            return start + 1
        last = -1  # the last noun so far
        place = start
        while place < count:
            kind = classes[place]
            if kind in NOUNS:
                last = place
            elif kind is C.PRONOUN:
                if place > start and classes[place - 1] in (C.DETERMINER, C.NUMBER):  # "the other"
                    last = place
                    place += 1
                break
            elif kind in SPECIFIERS:
                if place > start and classes[place - 1] not in (C.NUMBER, C.DETERMINER):
                    break
            elif kind is C.NUMBER:
                if last >= 0:
                    break
            elif kind is C.ADJECTIVE:
                if last >= 0 and not (place + 1 < count and classes[place + 1] in NOUNS):
                    break
                if last >= 0 and classes[place - 1] is C.PLURAL and classes[start] in SPECIFIERS:
                    break
            elif kind is C.POSSESSIVE:
                if last < 0:
                    break
            elif kind is C.ADVERB:
                if last >= 0 or place + 1 >= count or classes[place + 1] is not C.ADJECTIVE:
                    break
            elif kind in BREAKS:
                if not (last < 0 and classes[place - 1] is C.ADJECTIVE and self._joins_adjectives(place)):
                    break
            else:
                break
            place += 1
        end = place
        if last < 0:
            return self._bare(start, end)
        for at in range(start, last):
            kind = classes[at]
            if kind in NOUNS and at + 1 <= last and classes[at + 1] is C.POSSESSIVE:
                self._owner(start, at)
        owned = max((at for at in range(start, last) if classes[at] is C.POSSESSIVE), default=start - 1)
        described = -1
        for at in range(owned + 1, last):
            kind = classes[at]
            if kind is C.ADVERB:
                self.set(at, at + 1, "advmod")
            elif kind is C.CONJUNCTION:
                self.set(at, at + 1, "cc")
            elif kind is C.COMMA:
                self.set(at, at + 1, "punct")
            elif kind is C.ADJECTIVE and described >= 0 and at > 0 and classes[at - 1] in BREAKS:
                self.set(at, described, "conj")
            else:
                self.set(at, last, _BEFORE_NOUN.get(kind, "dep"))
                if kind is C.ADJECTIVE:
                    described = at
        for at in range(last + 1, end):  # "his mouth open"
            self.set(at, last, "amod")
        self._place(last)
        return max(end, last + 1)

    def _joins_adjectives(self, place: int) -> bool:
        """ "black and white dog": an adjective follows, and in the end a noun without an article of its own."""
        classes, count = self.classes, self.count
        at = place + 1
        if at < count and classes[at] is C.CONJUNCTION:  # ", and"
            at += 1
        while at < count and classes[at] in (C.ADJECTIVE, C.ADVERB):
            at += 1
            if at + 1 < count and classes[at] in BREAKS and classes[at + 1] in (C.ADJECTIVE, C.CONJUNCTION):
                at += 1
        return at > place + 1 and at < count and classes[at] in NOUNS

    def _owner(self, start: int, owner: int) -> None:
        """ "the dog 's ball": the words before the owner belong to it."""
        classes = self.classes
        following = next(at for at in range(owner + 2, self.count) if classes[at] in NOUNS)
        for at in range(start, owner):
            if self.heads[at] == -2:
                self.set(at, owner, _BEFORE_NOUN.get(classes[at], "dep"))
        self.set(owner + 1, owner, "case")
        self.set(owner, following, "nmod:poss")

    def _bare(self, start: int, end: int) -> int:
        """Adjectives, numbers and articles without a noun."""
        first = next((at for at in range(start, end) if self.classes[at] is C.ADJECTIVE), -1)
        if first < 0:  # "both", "the" before something unforeseen
            for at in range(start, end):
                self.waiting.append((at, "dep"))
            return max(end, start + 1)
        stop = first + 1
        joined = first
        while stop + 1 < self.count and self.classes[stop] in BREAKS and self.classes[stop + 1] is C.ADJECTIVE:
            self.set(stop, stop + 1, "cc" if self.classes[stop] is C.CONJUNCTION else "punct")
            self.set(stop + 1, first, "conj")
            joined = stop + 1
            stop += 2
        for at in range(start, first):
            self.set(at, first, "advmod" if self.classes[at] is C.ADVERB else "dep")
        for at in range(joined + 1, end):
            self.set(at, first, "advmod")
        if self.copula >= 0 or (self.predicate < 0 and self.subject >= 0 and self.noun < 0):
            self.set_predicate(first)
        elif self.case >= 0:
            self.classes[first] = C.NOUN
            self._place(first)
        elif self.noun > self.verb:
            self.set(first, self.noun, "amod")
        elif self.verb >= 0:
            self.set(first, self.verb, "xcomp")
        else:
            self.waiting.append((first, "dep"))
        return max(end, stop)

    def _place(self, head: int) -> None:
        """Give a noun phrase its place in the sentence."""
        if self.case >= 0:
            if self.in_case(head):
                return
        elif self.there >= 0 and self.copula >= 0:  # "there is a dog"
            verb, self.copula = self.copula, -1
            self.set(self.there, verb, "expl")
            self.there = -1
            self.set_predicate(verb)
            self.set(head, verb, "nsubj")
            self.subject = head  # and no verb: what follows is said of the thing
        elif self.copula >= 0:
            if self.subject < 0:  # "left of the ball is a cube"
                verb, self.copula = self.copula, -1
                self.set_predicate(verb)
                self.set(head, verb, "nsubj")
                self.subject = head
            else:
                self.set_predicate(head)
        elif self.subject >= 0 and self.classes[self.subject] is C.RELATIVE and self.predicate < 0:
            # "that a man holds"
            self.waiting.append((self.subject, "obj"))
            self.subject = head
        elif self.open_object and self.conjunction < 0 and not self.comma:
            self.set(head, self.verb, "obj")
            self.open_object = False
        elif self.conjunction >= 0 or self.comma:
            self._join(head)
        elif self.subject < 0 and self.predicate < 0:
            self.subject = head
        elif self.predicate < 0 and self._verb_follows(head):  # "A man the dog follows": take the nearer one
            self.close_clause(self.subject)
            self.subject = head
        else:
            if self.predicate >= 0:
                self.begin((self.main, "parataxis"))
                self.subject = head
            else:
                self.set(head, self.subject, "dep")
        self.comma = False
        self.noun = head

    def _join(self, head: int) -> None:
        """After "and" or a comma: one more of the same, or the subject of a new clause."""
        verb = self._verb_follows(head)
        several = bool(verb) and self.words[verb] not in ("is", "was", "has") and self.words[verb][-1] != "s"
        if (self.subject < 0 and self.predicate < 0 and self.noun < 0) or (self.fronted and self.subject < 0):
            self.subject = head
            return
        apart = self.conjunction > 0 and self.classes[self.conjunction - 1] is C.COMMA  # ", and a dog chases …"
        if verb and (self.predicate >= 0 or (apart and not several)):
            while self.outer:
                self.leave()
            if self.predicate < 0 and self.subject >= 0:
                self.close_clause(self.subject)
            self.begin((self.main, "conj"))
            self.subject = head
            if self.conjunction >= 0:
                self.waiting.append((self.conjunction, "cc"))
                self.conjunction = -1
            return
        other = self._alike(head)
        if other < 0:
            self.subject = head
            return
        self.set(head, other, "conj")
        if other < self.verb and self.predicate < 0:  # beside the one who does it: what follows is of the new one
            self.verb = -1
        if self.conjunction >= 0:
            self.set(self.conjunction, head, "cc")
            self.conjunction = -1

    def _alike(self, head: int) -> int:
        """The earlier noun that `head` is named beside: the nearest; but people beside people."""
        if self.noun < 0 or self.animate(head) == self.animate(self.noun):
            return self.noun
        if self.animate(head):
            at = self.heads[self.noun]
            while at >= 0:
                if self.classes[at] in NOUNS and self.animate(at):
                    return at
                at = self.heads[at]
            if self.subject >= 0 and self.predicate < 0 and self.animate(self.subject):
                return self.subject
        return self.noun

    def _verb_follows(self, head: int) -> int:
        """The place of the finite verb this noun phrase will be the subject of, 0 for none."""
        classes = self.classes
        relative = False
        for at in range(head + 1, self.count):
            kind = classes[at]
            if kind in (C.FINITE, C.AUXILIARY):
                if not relative:
                    return at
                relative = False
            elif kind is C.RELATIVE:
                relative = True
            elif kind in (C.CONJUNCTION, C.SUBORDINATOR):
                return 0
        return 0

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
            self.close_clause(self.subject)
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
            self.close_clause(self.subject)
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
