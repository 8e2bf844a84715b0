"""In how many pictures' captions an n-gram occurs: what CIDEr weighs it by, from a corpus of one's own choice.

Kept as JSON. The pickles that self-critical training code writes (`{"document_frequency": …, "ref_len": …}`) are read
by an unpickler that knows dictionaries and numbers, and runs nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.core.pickles import read_pickle
from saccade.metrics.captions.ngrams import MAX_NGRAM_WORDS, Ngrams, Word, WordNumbers, joined

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
    def of(cls, references: Sequence[Sequence[Sequence[Word]]]) -> DocumentFrequencies:
        """Of captions given picture by picture."""
        counts: Counter[tuple[Word, ...]] = Counter()
        for captions in references:
            counts.update({ngram for caption in captions for ngram in _ngrams(tuple(caption))})
        return cls(len(references), counts)

    @classmethod
    def load(cls, path: Path | str) -> DocumentFrequencies:
        """Our JSON, or the pickle of self-critical code (`.p`, `.pkl`, `.pickle`)."""
        path = Path(path)
        if path.suffix in (".p", ".pkl", ".pickle"):
            return cls._checked(
                read_pickle(path, PLAIN, "pickle of document frequencies"), "ref_len", "document_frequency", path
            )
        content = read_json(path)
        found = cls._checked(content, "pictures", "document_frequencies", path)
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

    def table(self, words: WordNumbers) -> tuple[Ngrams, list[Float[np.ndarray, " ngram"]]]:
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
            codes = np.concatenate([joined(beginnings[group], numbers[group][:, n]) for group in longer])
            table, which = np.unique(codes, return_inverse=True)
            ends = np.cumsum([len(rows[group]) for group in longer])[:-1]
            for group, part in zip(longer, np.split(which, ends), strict=True):
                beginnings[group] = part
            frequency = np.zeros(len(table))
            frequency[beginnings[n]] = values[n]
            tables.append(table)
            frequencies.append(frequency)
        return Ngrams(tuple(tables)), frequencies


def _ngrams(words: tuple[Word, ...]) -> Iterable[tuple[Word, ...]]:
    return (words[i : i + n] for n in range(1, MAX_NGRAM_WORDS + 1) for i in range(len(words) - n + 1))
