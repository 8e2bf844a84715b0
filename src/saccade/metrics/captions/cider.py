"""CIDEr: Consensus-based Image Description Evaluation (Vedantam, Zitnick, Parikh; CVPR 2015).

An n-gram weighs as often as it is said, times how rare it is over pictures:

    g_n(s) = times in s · (log #pictures - log max(1, pictures whose references have it))
    CIDEr(c) = 10 · mean over n = 1 … 4 and references r of  ⟨g_n(c), g_n(r)⟩ / (‖g_n(c)‖ ‖g_n(r)‖)

CIDEr-D, the form that papers print under the name of CIDEr, cannot be won by repeating words or by length: the product
becomes ⟨min(g_n(c), g_n(r)), g_n(r)⟩ and each term is multiplied by exp(-(l_c - l_r)² / 2σ²) with σ = 6. The official
lengths count pairs of words, so a sentence of one word is as long as one of none.

The document frequencies may come from a corpus of one's own choice. They are kept as JSON. The pickles that
self-critical training code writes (`{"document_frequency": …, "ref_len": …}`) are read by an unpickler that knows
dictionaries and numbers, and runs nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, read_pickle, write_json
from saccade.metrics.captions import ngrams
from saccade.metrics.captions.ngrams import (
    MAX_NGRAM_WORDS,
    Counted,
    Numbers,
    Owners,
    PreparedReferences,
    Sentences,
    Word,
)
from saccade.metrics.captions.score import Candidates, CaptionScore, References, check_captions

PLAIN = {  # everything that such a pickle may name, under the names of Python 2 and 3
    ("collections", "defaultdict"): defaultdict,
    ("collections", "Counter"): Counter,
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (float, int, dict, list)},
}


@dataclass(frozen=True, eq=False)
class DocumentFrequencies:
    """For each n-gram of one to four words, the number of pictures with it in some caption."""

    pictures: float
    counts: Mapping[tuple[Word, ...], float]

    @classmethod
    def of(cls, references: Sequence[Sentences]) -> DocumentFrequencies:
        """Of captions given picture by picture."""
        counts: Counter[tuple[Word, ...]] = Counter()
        for captions in references:
            counts.update(
                {
                    tuple(caption[start : start + n])
                    for caption in captions
                    for n in range(1, MAX_NGRAM_WORDS + 1)
                    for start in range(len(caption) - n + 1)
                }
            )
        return cls(len(references), counts)

    @classmethod
    def load(cls, path: Path | str) -> DocumentFrequencies:
        """Our JSON, or the pickle of self-critical code (`.p`, `.pkl`, `.pickle`)."""
        path = Path(path)
        if path.suffix in (".p", ".pkl", ".pickle"):
            content = read_pickle(path, PLAIN, "pickle of document frequencies")
            return cls._checked(content, "ref_len", "document_frequency", path)
        found = cls._checked(read_json(path), "pictures", "document_frequencies", path)
        return cls(found.pictures, {tuple(str(ngram).split(" ")): count for ngram, count in found.counts.items()})

    @classmethod
    def _checked(cls, content: Any, pictures: str, counts: str, path: Path) -> DocumentFrequencies:
        if not isinstance(content, dict) or not isinstance(content.get(counts), dict):
            raise SaccadeError(f'{path} holds no document frequencies: a mapping "{counts}" was expected')
        number = content.get(pictures)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 1 <= number < float("inf"):
            raise SaccadeError(f'{path}: "{pictures}" must be the number of pictures that were counted')
        for ngram, count in content[counts].items():
            if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count < float("inf"):
                raise SaccadeError(f'{path}: "{counts}" has {count!r} for {ngram!r}, a number of pictures was expected')
            if not isinstance(ngram, str | tuple):
                raise SaccadeError(f'{path}: "{counts}" has the key {ngram!r}, an n-gram was expected')
        return cls(float(number), content[counts])

    def save(self, path: Path | str) -> None:
        """As JSON; for words, which hold no spaces."""
        if not all(isinstance(word, str) and " " not in word for ngram in self.counts for word in ngram):
            raise SaccadeError(f"{path} keeps words, not ids: rename the n-grams of these document frequencies first")
        counts = {" ".join(map(str, ngram)): count for ngram, count in self.counts.items()}
        write_json(path, {"pictures": self.pictures, "document_frequencies": counts})

    def rename(self, name: Callable[[Word], Word]) -> DocumentFrequencies:
        """With other words for the same n-grams: ids of ours for ids of theirs, say."""
        renamed = {tuple(map(name, ngram)): count for ngram, count in self.counts.items()}
        if len(renamed) != len(self.counts):
            raise SaccadeError("the new names are not distinct: n-grams would fall together")
        return DocumentFrequencies(self.pictures, renamed)

    def table(self, words: ngrams.WordNumbers) -> tuple[ngrams.Ngrams, list[Float[np.ndarray, " ngram"]]]:
        """The n-grams and all their beginnings as tables of numbers, and each one's frequency."""
        rows: list[list[tuple[Word, ...]]] = [[] for _ in range(MAX_NGRAM_WORDS)]
        values: list[list[float]] = [[] for _ in range(MAX_NGRAM_WORDS)]
        for ngram, count in self.counts.items():
            if not 1 <= len(ngram) <= MAX_NGRAM_WORDS:
                raise SaccadeError(f"document frequencies are of one to {MAX_NGRAM_WORDS} words, not of {ngram!r}")
            rows[len(ngram) - 1].append(ngram)
            values[len(ngram) - 1].append(count)
        numbers = [words.read(group)[0].reshape(len(group), n + 1) for n, group in enumerate(rows)]
        beginnings = [np.zeros(len(group), dtype=np.int64) for group in rows]
        tables, frequencies = [], []
        for n in range(MAX_NGRAM_WORDS):
            longer = range(n, MAX_NGRAM_WORDS)
            codes = np.concatenate([ngrams.joined(beginnings[group], numbers[group][:, n]) for group in longer])
            table, which = np.unique(codes, return_inverse=True)
            ends = np.cumsum([len(rows[group]) for group in longer])[:-1]
            for group, part in zip(longer, np.split(which, ends), strict=True):
                beginnings[group] = part
            frequency = np.zeros(len(table))
            frequency[beginnings[n]] = values[n]
            tables.append(table)
            frequencies.append(frequency)
        return tuple(tables), frequencies


SIGMA = 6.0


class CiderD:
    """CIDEr-D against references that are prepared once: what self-critical training needs at every step."""

    def __init__(
        self,
        references: PreparedReferences | Sequence[Sentences],
        document_frequencies: DocumentFrequencies | None = None,
        sigma: float | None = SIGMA,
        clipped: bool = True,
    ) -> None:
        """Words are tokens or ids, the same kind everywhere. `sigma=None, clipped=False` is the first CIDEr."""
        self.references = references if isinstance(references, PreparedReferences) else PreparedReferences(references)
        self.sigma, self.clipped = sigma, clipped
        if document_frequencies is None:
            self._table = self.references.counted.ngrams
            pictures = float(len(self.references))
            frequencies = [
                np.bincount(shelf.keys // shelf.pictures, minlength=len(table)).astype(np.float64)
                for shelf, table in zip(self.references.shelves, self.references.counted.ngrams, strict=True)
            ]
        else:
            pictures = document_frequencies.pictures
            self._table, frequencies = document_frequencies.table(self.references.words)
        unseen = np.log(pictures)  # the last: of an n-gram that is nowhere, at index -1
        self._rarity = [np.append(unseen - np.log(np.maximum(1.0, each)), unseen) for each in frequencies]
        self._scales = [_inverse(norm) for _, norm in self._weigh(self.references.counted)]
        self._word_pairs = _word_pairs(self.references.counted)

    def score(self, candidates: Sentences, owners: Owners = None) -> Float[np.ndarray, " candidate"]:
        """Of each candidate against the references of the picture that owns it."""
        said, about = self.references.read(candidates, owners)
        word_pairs = _word_pairs(said)
        total = np.zeros(len(about))
        for (counts, shelf, found), (rarity, norm), scale in zip(
            self.references.shared(said, about), self._weigh(said), self._scales, strict=True
        ):
            entry, given = shelf.pairs(found)  # every n-gram that a candidate shares with a reference
            candidate, reference = counts.sentence[entry], shelf.reference[given]
            theirs = shelf.times[given] * rarity[entry]
            own = counts.times[entry] * rarity[entry]
            product = (np.minimum(own, theirs) if self.clipped else own) * theirs
            product *= _inverse(norm)[candidate] * scale[reference]
            if self.sigma is not None:
                apart = word_pairs[candidate] - self._word_pairs[reference]
                product *= np.exp(-(apart**2) / (2 * self.sigma**2))
            total += np.bincount(candidate, weights=product, minlength=len(total))
        return np.asarray(10.0 * total / (MAX_NGRAM_WORDS * self.references.amounts[about]))

    def _weigh(self, counted: Counted) -> Iterator[tuple[Float[np.ndarray, " count"], Float[np.ndarray, " sentence"]]]:
        """For each n how rare the n-gram of every count is, and the norm of every sentence.

        Unknown n-grams are all as rare as each other, and the squares of their counts are added as whole numbers: their
        order is that in which words were first met, and a norm must not depend on earlier sentences.
        """
        places = [np.arange(len(table)) for table in self._table]
        if counted.ngrams is not self._table:
            places = ngrams.find_ngrams(self._table, counted.ngrams)
        for counts, place, every in zip(counted.counts, places, self._rarity, strict=True):
            found = place[counts.ngram]
            rarity, unknown = every[found], np.flatnonzero(found < 0)
            weights = counts.times * rarity
            weights[unknown] = 0
            squares = np.bincount(counts.sentence, weights**2, len(counted.lengths))
            times = np.bincount(counts.sentence[unknown], counts.times[unknown] ** 2, len(counted.lengths))
            yield rarity, np.sqrt(squares + times * every[-1] ** 2)


def _word_pairs(counted: Counted) -> Numbers:
    return np.asarray(np.maximum(0, counted.lengths - 1))


def _inverse(norm: Float[np.ndarray, " sentence"]) -> Float[np.ndarray, " sentence"]:
    """1 / norm; a sentence without weight is like no other."""
    return np.asarray(np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0))


def cider_d(
    candidates: Candidates, references: References, document_frequencies: DocumentFrequencies | None = None
) -> CaptionScore:
    """CIDEr-D, with the document frequencies of these references or of a larger corpus."""
    check_captions(candidates, references)
    return CaptionScore.mean(CiderD(references, document_frequencies).score(candidates))


def cider(
    candidates: Candidates, references: References, document_frequencies: DocumentFrequencies | None = None
) -> CaptionScore:
    """The first CIDEr: without clipping and without regard to length."""
    check_captions(candidates, references)
    return CaptionScore.mean(CiderD(references, document_frequencies, sigma=None, clipped=False).score(candidates))
