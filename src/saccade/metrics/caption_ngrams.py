"""N-grams as whole numbers, so that thousands of captions are counted and compared by a few sorts.

An n-gram is its beginning and its last word: the number of its (n-1)-gram in the sorted table of all (n-1)-grams, and the
number of the word, side by side in 64 bits. Nothing is hashed, so no two n-grams are ever taken for one another.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from jaxtyping import Int

from saccade.errors import SaccadeError

LONGEST = 4  # words of the longest n-gram that BLEU and CIDEr count
WORD_BITS = 32  # of an n-gram's code; the rest is for the number of its beginning

Word: TypeAlias = Hashable  # a token or a word id
Numbers: TypeAlias = Int[np.ndarray, " _"]


class WordNumbers:
    """Numbers words in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Word, int] = {}

    def read(self, sentences: Sequence[Iterable[Word]]) -> tuple[Numbers, Numbers]:
        """All words of all sentences one after another, and the length of each sentence."""
        whole = [tuple(sentence) for sentence in sentences]
        lengths = np.fromiter(map(len, whole), dtype=np.int64, count=len(whole))
        numbers = self._numbers
        for word in dict.fromkeys(chain.from_iterable(whole)):
            numbers.setdefault(word, len(numbers))
        words = chain.from_iterable(whole)
        return np.fromiter(map(numbers.__getitem__, words), dtype=np.int64, count=int(lengths.sum())), lengths


@dataclass(frozen=True, eq=False)
class Ngrams:
    """Distinct n-grams: for n = 1 … 4 a sorted table of codes; an n-gram's place there is its number."""

    codes: tuple[Numbers, ...]

    def find(self, others: Ngrams) -> list[Numbers]:
        """For each n the places of other n-grams in these tables; -1 for those that are not there."""
        found: list[Numbers] = []
        for own, codes in zip(self.codes, others.codes, strict=True):
            if found:
                beginning = found[-1][codes >> WORD_BITS]
                codes = np.where(beginning < 0, -1, joined(beginning, codes & ((1 << WORD_BITS) - 1)))
            found.append(places(own, codes))
        return found


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each n-gram of one length stands in each sentence, ordered by sentence, then by n-gram."""

    sentence: Numbers
    ngram: Numbers
    times: Numbers


@dataclass(frozen=True, eq=False)
class Counted:
    """Sentences as bags of n-grams."""

    lengths: Int[np.ndarray, " sentence"]
    ngrams: Ngrams
    counts: tuple[Counts, ...]  # n = 1 … 4


def joined(beginning: Numbers, word: Numbers) -> Numbers:
    return (beginning << WORD_BITS) | word


def places(table: Numbers, wanted: Numbers) -> Numbers:
    """Where each wanted number stands in a sorted table, or -1."""
    if not len(table):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return np.where(table[place] == wanted, place, -1)


def count_ngrams(words: Numbers, lengths: Numbers) -> Counted:
    """All n-grams of sentences that lie one after another."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    left = np.cumsum(lengths)[owner] - np.arange(len(words))  # words from here to the end of the sentence
    tables, counts = [], []
    number = np.zeros(len(words), dtype=np.int64)  # of the (n-1)-gram that begins at each word
    for n in range(1, LONGEST + 1):
        begins = np.flatnonzero(left >= n)
        table, which = np.unique(joined(number[begins], words[begins + n - 1]), return_inverse=True)
        number[begins] = which
        size = max(1, len(table))
        entries, times = np.unique(owner[begins] * size + which, return_counts=True)
        tables.append(table)
        counts.append(Counts(entries // size, entries % size, times))
    return Counted(lengths, Ngrams(tuple(tables)), tuple(counts))


@dataclass(frozen=True, eq=False)
class Shelf:
    """The n-grams of one length, picture by picture: which references have them, and how often."""

    size: int  # n-grams in the table: the key of one in a picture is picture · size + n-gram
    keys: Numbers  # sorted, each once
    starts: Numbers  # where the entries of each key begin; one more, where the last ends
    reference: Numbers
    times: Numbers
    most: Numbers  # the most that one reference of the picture has of it

    def find(self, pictures: Numbers, ngrams: Numbers) -> Numbers:
        """The keys' places, or -1 where no reference of the picture has the n-gram."""
        return np.where(ngrams < 0, -1, places(self.keys, pictures * self.size + ngrams))

    def pairs(self, found: Numbers) -> tuple[Numbers, Numbers]:
        """Every (row of `found`, entry of a reference) that share an n-gram."""
        rows = np.flatnonzero(found >= 0)
        first, last = self.starts[found[rows]], self.starts[found[rows] + 1]
        counts = last - first
        begun = np.repeat(first - (np.cumsum(counts) - counts), counts)
        return np.repeat(rows, counts), begun + np.arange(int(counts.sum()))


class PreparedReferences:
    """References counted once, to compare any number of candidates with."""

    def __init__(self, references: Sequence[Sequence[Iterable[Word]]]) -> None:
        amounts = np.fromiter(map(len, references), dtype=np.int64, count=len(references))
        if not len(amounts):
            raise SaccadeError("there are no reference captions")
        if not amounts.all():
            raise SaccadeError(f"picture {int(np.argmin(amounts))} has no reference captions")
        self.amounts: Int[np.ndarray, " picture"] = amounts
        self.first: Int[np.ndarray, " picture"] = np.cumsum(amounts) - amounts
        self.picture: Int[np.ndarray, " reference"] = np.repeat(np.arange(len(amounts)), amounts)
        self.words = WordNumbers()
        self.counted = count_ngrams(*self.words.read(list(chain.from_iterable(references))))
        self.shelves = [
            _shelve(counts, self.picture, len(table))
            for counts, table in zip(self.counted.counts, self.counted.ngrams.codes, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.amounts)

    def read(
        self, candidates: Sequence[Iterable[Word]], owners: Sequence[int] | Numbers | None = None
    ) -> tuple[Counted, Numbers]:
        """Candidates counted, and the picture that each one is about: by default one a picture, in order."""
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
        numbers = self.counted.ngrams.find(candidates.ngrams)
        for counts, shelf, number in zip(candidates.counts, self.shelves, numbers, strict=True):
            yield counts, shelf, shelf.find(about[counts.sentence], number[counts.ngram])


def _shelve(counts: Counts, picture: Numbers, size: int) -> Shelf:
    every = picture[counts.sentence] * max(1, size) + counts.ngram
    order = np.argsort(every, kind="stable")
    every, times = every[order], counts.times[order]
    new = np.flatnonzero(np.diff(every, prepend=-1))
    most = np.maximum.reduceat(times, new) if len(new) else times
    return Shelf(max(1, size), every[new], np.append(new, len(every)), counts.sentence[order], times, most)
