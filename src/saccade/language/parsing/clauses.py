"""The state of a caption while it is read: clauses, their predicates, and the words that still wait for a head."""

from __future__ import annotations

from saccade.language import caption_words as tables
from saccade.language.caption_words import C, WordClass, singular, word_table
from saccade.language.parsing.tags import PHRASE, VERBS, classify

PRESENTERS = word_table("see sees show shows showing depicts features featuring displays")


class Clauses:
    """Words get heads from left to right; -2 is a word without one, -1 the root."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words, self.classes, self.count = words, classify(words), len(words)
        self.heads, self.labels = [-2] * self.count, ["dep"] * self.count
        self.root = self.main = -1  # main: the first predicate, on which later clauses hang
        self.case = self.conjunction = self.copula = self.there = -1  # words that wait for what they belong to
        self.comma = False
        self.auxiliaries: list[int] = []
        self.waiting: list[tuple[int, str]] = []  # marks and adverbs for the next predicate
        self.fronted: list[int] = []  # "in a field …", before there is anything to be in it
        self.outer: list[tuple[int, int, int]] = []  # around a relative clause: subject, predicate, verb
        self.noun = -1  # the nearest noun
        self.begin(None)

    def begin(self, link: tuple[int, str] | None) -> None:
        """A new clause; its predicate will hang on `link`."""
        self.subject = self.predicate = self.verb = -1
        self.open_object = False  # whether the verb may still take an object
        self.link = link

    def set(self, place: int, head: int, label: str) -> None:
        self.heads[place], self.labels[place] = head, label

    def animate(self, place: int) -> bool:
        return singular(self.words[place]) in tables.ANIMATE

    def is_worn(self, place: int) -> bool:
        word = self.words[place]
        return word in tables.COLOUR_WORDS or singular(word) in tables.WORN

    # Clauses

    def leave(self) -> None:
        """Back from a relative clause to the clause around it."""
        self.subject, self.predicate, self.verb = self.outer.pop()
        self.link, self.open_object = None, False

    def close_clause(self, place: int) -> None:
        """A noun that no verb followed stands for its clause."""
        if self.heads[place] != -2:
            return
        if self.root < 0:
            self.set(place, -1, "root")
            self.root = place
        else:
            self.set(place, self.root, "parataxis")
        for fronted in self.fronted:
            self.set(fronted, place, "nmod")
        for word, label in self.waiting:
            self.set(word, place, label)
        self.fronted, self.waiting = [], []
        if self.main < 0:
            self.main = place

    def ready(self) -> None:
        """Before a finite verb: which clause is it of?"""
        if self.conjunction >= 0:
            while self.outer:
                self.leave()
        while self.predicate >= 0 and self.outer:
            self.leave()

    def set_predicate(self, place: int, passive: bool = False) -> None:
        """The word a clause is built around, with all that waited for it."""
        joined = self.conjunction >= 0
        if self.link is not None and self.link[0] >= 0:
            self.set(place, *self.link)
        elif self.predicate >= 0:
            self.set(place, self.predicate, "conj" if joined else "parataxis")
        elif self.root < 0:
            self.set(place, -1, "root")
            self.root = place
        elif self.root != place:
            self.set(place, self.root, "conj" if joined else "parataxis")
        if joined:
            self.set(self.conjunction, place, "cc")
        subject = self.subject
        if subject >= 0 and self.heads[subject] == -2:
            self.set(subject, place, "nsubj:pass" if passive else "nsubj")
        for fronted in self.fronted:
            self.set(fronted, place, "obl")
        for auxiliary in self.auxiliaries:
            self.set(auxiliary, place, "aux:pass" if passive and self.words[auxiliary] in tables.BE else "aux")
        if self.copula >= 0:
            self.set(self.copula, place, "cop")
        for word, label in self.waiting:
            self.set(word, place, label)
        self.fronted, self.auxiliaries, self.waiting = [], [], []
        self.copula = self.conjunction = -1
        self.link, self.comma = None, False
        self.predicate = place
        if self.main < 0:
            self.main = place

    # Verbs

    def add_verb(self, place: int, kind: WordClass) -> None:
        if kind is C.FINITE or self.auxiliaries or self.copula >= 0:
            self.ready()
            passive = kind is C.DONE and any(self.words[a] in tables.BE for a in self.auxiliaries)
            self.set_predicate(place, passive)
        elif self.subject < 0 and self.noun < 0 and self.verb < 0:  # "Playing in the snow"
            self.set_predicate(place)
        else:
            self._add_participle(place, kind)
        self.verb, self.comma = place, False
        self.open_object = kind is not C.DONE or self.words[place] == "given"

    def _add_participle(self, place: int, kind: WordClass) -> None:
        """ "a dog chasing a cat", "tries to catch it": who does it?"""
        marked = any(label == "mark" for _, label in self.waiting)
        if self.conjunction >= 0 and self.verb >= 0:
            self.set(self.conjunction, place, "cc")
            self.conjunction = -1
            self.set(place, self.verb, "conj")
        elif kind is C.INFINITIVE and self.verb >= 0:
            self.set(place, self.verb, "xcomp")
        elif marked and (self.verb >= 0 or self.predicate >= 0):
            self.set(place, self.verb if self.verb >= 0 else self.predicate, "advcl")
        else:
            self._modify(place, kind)
        for word, label in self.waiting:
            self.set(word, place, label)
        self.waiting = []

    def _modify(self, place: int, kind: WordClass) -> None:
        noun, verb = self.noun, self.verb
        states = self.words[place] in tables.STATES_OF_THINGS
        shown = verb >= 0 and self.words[verb] in PRESENTERS  # "we see a cube pushed by a dog"
        if verb > noun >= 0 or noun < 0:  # "stands holding", "runs along barking"
            self.set(place, verb if verb >= 0 else self.subject, "advcl")
        elif shown or states or (kind is C.DONE and self.words[place] != "dressed") or self.animate(noun):
            self.set(place, self._pair(noun, place), "acl")
        elif verb >= 0 and self.heads[verb] >= 0 and self.labels[verb] == "acl" and not self.animate(noun):
            self.set(place, self.heads[verb], "acl")
        elif self.predicate >= 0 and (verb >= 0 or self.words[self.predicate] not in tables.BE):  # not "there is"
            self.set(place, self.predicate, "advcl")
        elif self.subject >= 0 and self.animate(self.subject):
            self.set(place, self.subject, "acl")
        else:
            self.set(place, noun, "acl")

    def _pair(self, noun: int, place: int) -> int:
        """ "a man and a woman sitting": both sit, and the first stands for both."""
        first = self.heads[noun]
        joined = self.labels[noun] == "conj" and self.classes[first + 1] is C.CONJUNCTION
        both = joined and self.words[place] != "made" and self.animate(noun) and self.animate(first)
        return first if both else noun

    def add_auxiliary(self, place: int) -> None:
        """Part of a verb ("is running"), between a thing and what it is ("is red"), or a verb of its own."""
        at = place + 1
        while at < self.count and self.classes[at] is C.ADVERB and self.words[at] not in ("outdoors", "indoors"):
            at += 1
        after = self.classes[at] if at < self.count else C.MARK
        if after in VERBS or after in (C.AUXILIARY, C.NAMES_VERB) or self.words[place] not in tables.BE:
            self.auxiliaries.append(place)
            return
        if self.there < 0:
            self.ready()
        if after in PHRASE or after is C.PREPOSITION or (after is C.ADVERB and at == place + 1):
            self.copula = place
        else:
            self.set_predicate(place)
            self.verb = place
