"""N-grams as whole numbers, so that thousands of captions are counted and compared by a few sorts.

An n-gram is its beginning and its last word: the number of its (n-1)-gram in the sorted table of all (n-1)-grams, and
the number of the word, side by side in 64 bits. Nothing is hashed, so no two n-grams are ever taken for one another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Int

from saccade.core.errors import SaccadeError

MAX_NGRAM_WORDS = 4  # of those that BLEU and CIDEr count
WORD_BITS = 32  # of an n-gram's code; the rest is for the number of its beginning

Word: TypeAlias = Hashable  # a token or a word id
Sentences: TypeAlias = Sequence[Sequence[Word]]
Numbers: TypeAlias = Int[np.ndarray, " _"]
Ngrams: TypeAlias = tuple[Numbers, ...]  # for n = 1 … 4 the sorted codes of distinct n-grams; a place is a number
Owners: TypeAlias = Sequence[int] | Numbers | None  # the picture of each candidate; None: one a picture, in order


class WordNumbers:
    """Numbers words in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Word, int] = defaultdict(count().__next__)

    def read(self, sentences: Sentences) -> tuple[Numbers, Numbers]:
        """All words of all sentences one after another, and the length of each sentence."""
        lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
        words = map(self._numbers.__getitem__, chain.from_iterable(sentences))
        return np.fromiter(words, dtype=np.int64, count=int(lengths.sum())), lengths


def find_ngrams(tables: Ngrams, others: Ngrams) -> list[Numbers]:
    """For each n the places of other n-grams in these tables; -1 for those that are not there."""
    found: list[Numbers] = []
    for own, codes in zip(tables, others, strict=True):
        if found:
            beginning = found[-1][codes >> WORD_BITS]
            codes = np.where(beginning < 0, -1, joined(beginning, codes & ((1 << WORD_BITS) - 1)))
        found.append(places(own, codes))
    return found


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each n-gram of one length stands in each sentence, ordered by n-gram, then by sentence."""

    ngram: Numbers
    sentence: Numbers
    times: Numbers


@dataclass(frozen=True, eq=False)
class Counted:
    """Sentences as bags of n-grams."""

    lengths: Int[np.ndarray, " sentence"]
    ngrams: Ngrams
    counts: tuple[Counts, ...]  # n = 1 … 4


def joined(beginning: Numbers, word: Numbers) -> Numbers:
    return np.asarray((beginning << WORD_BITS) | word)


def places(table: Numbers, wanted: Numbers) -> Numbers:
    """Where each wanted number stands in a sorted table, or -1."""
    if not len(table):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return np.asarray(np.where(table[place] == wanted, place, -1))


def count_ngrams(words: Numbers, lengths: Numbers) -> Counted:
    """All n-grams of sentences that lie one after another."""
    vocabulary = int(words.max(initial=0)) + 1
    owner = np.repeat(np.arange(len(lengths)), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))  # words from here to the sentence's end
    number = np.zeros(len(words), dtype=np.int64)  # of the (n-1)-gram that begins at each word
    tables, counts = [], []
    for n in range(1, MAX_NGRAM_WORDS + 1):
        begins = np.flatnonzero(left >= n)
        codes, begins = sort_with_places(number[begins] * vocabulary + words[begins + n - 1], begins)
        new = changes(codes)
        numbers = np.cumsum(new) - 1
        number[begins] = numbers
        sentences = owner[begins]
        first = np.flatnonzero(new | changes(sentences))
        tables.append(joined(*np.divmod(codes[new], vocabulary)))
        counts.append(Counts(numbers[first], sentences[first], np.diff(first, append=len(codes))))
    return Counted(lengths, tuple(tables), tuple(counts))


def sort_with_places(codes: Numbers, places: Numbers) -> tuple[Numbers, Numbers]:
    """Codes in order, with their places; where a code is there several times, its places are in order too.

    One sort of both in one number: a third of the time of a sort that says where each code was.
    """
    bits = int(places.max(initial=0)).bit_length()
    if int(codes.max(initial=0)).bit_length() + bits > 63:
        order = np.argsort(codes, kind="stable")
        return codes[order], places[order]
    both = np.sort((codes << bits) | places)
    return both >> bits, both & ((1 << bits) - 1)


def changes(numbers: Numbers) -> Bool[np.ndarray, " _"]:
    """Where a number differs from the one before it."""
    new = np.ones(len(numbers), dtype=bool)
    np.not_equal(numbers[1:], numbers[:-1], out=new[1:])
    return new


class Shelf:
    """The n-grams of one length, picture by picture: which references have them, and how often."""

    def __init__(self, counts: Counts, picture: Int[np.ndarray, " reference"], pictures: int) -> None:
        every = counts.ngram * pictures + picture[counts.sentence]
        new = np.flatnonzero(changes(every))
        self.pictures = pictures
        self.keys = every[new]  # n-gram · pictures + picture: sorted, each once
        self.starts = np.append(new, len(every))  # where the entries of each key begin; and the end
        self.reference, self.times = counts.sentence, counts.times

    @cached_property
    def most(self) -> Numbers:
        """The most that one reference of the picture has of the n-gram, for each key."""
        return np.maximum.reduceat(self.times, self.starts[:-1]) if len(self.keys) else self.times

    def find(self, pictures: Numbers, ngrams: Numbers) -> Numbers:
        """The keys' places, or -1 where no reference of the picture has the n-gram."""
        return np.asarray(np.where(ngrams < 0, -1, places(self.keys, ngrams * self.pictures + pictures)))

    def pairs(self, found: Numbers) -> tuple[Numbers, Numbers]:
        """Every (row of `found`, entry of a reference) that share an n-gram."""
        rows = np.flatnonzero(found >= 0)
        first = self.starts[found[rows]]
        amounts = self.starts[found[rows] + 1] - first
        return np.repeat(rows, amounts), ranges(first, amounts)


def ranges(first: Numbers, amounts: Numbers) -> Numbers:
    """first, first + 1, … of each range one after another."""
    return np.asarray(np.repeat(first - (np.cumsum(amounts) - amounts), amounts) + np.arange(int(amounts.sum())))


class PreparedReferences:
    """References counted once, to compare any number of candidates with."""

    def __init__(self, references: Sequence[Sentences]) -> None:
        amounts = np.fromiter(map(len, references), dtype=np.int64, count=len(references))
        if not len(amounts):
            raise SaccadeError("there are no reference captions")
        if not amounts.all():
            raise SaccadeError(f"picture {int(np.argmin(amounts))} has no reference captions")
        self.amounts: Int[np.ndarray, " picture"] = amounts
        self.first: Int[np.ndarray, " picture"] = np.cumsum(amounts) - amounts
        self.words = WordNumbers()
        self.counted = count_ngrams(*self.words.read(list(chain.from_iterable(references))))
        picture = np.repeat(np.arange(len(amounts)), amounts)
        self.shelves = [Shelf(counts, picture, len(amounts)) for counts in self.counted.counts]

    def __len__(self) -> int:
        return len(self.amounts)

    def read(self, candidates: Sentences, owners: Owners = None) -> tuple[Counted, Numbers]:
        """Candidates counted, and the picture that each one is about."""
        about = np.arange(len(self)) if owners is None else np.asarray(owners, dtype=np.int64)
        if len(candidates) != len(about):
            raise SaccadeError(
                f"{len(candidates)} captions were given for {len(about)} {'pictures' if owners is None else 'owners'}"
            )
        if len(about) and not 0 <= int(about.min()) <= int(about.max()) < len(self):
            raise SaccadeError(f"the captions' owners must be pictures 0 to {len(self) - 1}")
        return count_ngrams(*self.words.read(candidates)), about

    def shared(self, candidates: Counted, about: Numbers) -> Iterator[tuple[Counts, Shelf, Numbers]]:
        """For n = 1 … 4: the candidates' counts, the shelf, and where each count's n-gram stands on it (or -1)."""
        numbers = find_ngrams(self.counted.ngrams, candidates.ngrams)
        for counts, shelf, number in zip(candidates.counts, self.shelves, numbers, strict=True):
            yield counts, shelf, shelf.find(about[counts.sentence], number[counts.ngram])
