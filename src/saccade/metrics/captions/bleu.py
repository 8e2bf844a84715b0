"""BLEU (Papineni, Roukos, Ward, Zhu; ACL 2002), as captions are scored with it.

    BLEU-N = min(1, exp(1 - r / c)) · (p₁ … p_N)^(1/N)

p_n: the share of the candidates' n-grams that a reference has too, each at most as often as one reference has it; c:
the candidates' words; r: the words of the references nearest in length (of two as near, the shorter). For all pictures
the counts are added up first. Of one picture, counts may be zero: the numerators are raised by 1e-15, the denominators
by 1e-9, as the official evaluation does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from saccade.metrics.captions.ngrams import MAX_NGRAM_WORDS, Numbers, Owners, PreparedReferences, Sentences, ranges
from saccade.metrics.captions.score import Candidates, CaptionScore, References, check_captions

TINY, SMALL = 1e-15, 1e-9


class Bleu:
    """Sentence BLEU against references that are prepared once."""

    def __init__(self, references: PreparedReferences | Sequence[Sentences]) -> None:
        self.references = references if isinstance(references, PreparedReferences) else PreparedReferences(references)

    def score(self, candidates: Sentences, owners: Owners = None) -> Float[np.ndarray, "n candidate"]:
        """BLEU-1 to BLEU-4 of each candidate against the references of the picture that owns it."""
        return _bleu(*self.counts(candidates, owners))

    def counts(self, candidates: Sentences, owners: Owners = None) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """[n, candidate] n-grams that are right, and all; the candidates' lengths and the nearest references'."""
        said, about = self.references.read(candidates, owners)
        right = np.zeros((MAX_NGRAM_WORDS, len(about)), dtype=np.int64)
        for n, (counts, shelf, found) in enumerate(self.references.shared(said, about)):
            hits = np.flatnonzero(found >= 0)
            clipped = np.minimum(counts.times[hits], shelf.most[found[hits]])
            np.add.at(right[n], counts.sentence[hits], clipped)
        guesses = np.maximum(0, said.lengths[None] - np.arange(MAX_NGRAM_WORDS)[:, None])
        return right, guesses, said.lengths, self._nearest(said.lengths, about)

    def _nearest(self, lengths: Numbers, about: Numbers) -> Int[np.ndarray, " candidate"]:
        """The length of the reference nearest to each candidate's; of two as near, the shorter."""
        amounts = self.references.amounts[about]
        length = self.references.counted.lengths[ranges(self.references.first[about], amounts)]
        far = np.abs(length - np.repeat(lengths, amounts))
        longest = int(length.max(initial=0)) + 1
        begun = np.cumsum(amounts) - amounts
        return np.asarray(np.minimum.reduceat(far * longest + length, begun) % longest if len(begun) else begun)


def bleu(candidates: Candidates, references: References) -> list[CaptionScore]:
    """BLEU-1, BLEU-2, BLEU-3 and BLEU-4."""
    check_captions(candidates, references)
    counts = Bleu(references).counts(candidates)
    each = _bleu(*counts)
    corpus = _bleu(*(part.sum(axis=-1, keepdims=True) for part in counts))
    return [CaptionScore(float(corpus[n, 0]), each[n]) for n in range(MAX_NGRAM_WORDS)]


def _bleu(right: Numbers, guesses: Numbers, lengths: Numbers, wanted: Numbers) -> Float[np.ndarray, "n row"]:
    product = np.cumprod((right + TINY) / (guesses + SMALL), axis=0)
    mean = product ** (1 / np.arange(1, MAX_NGRAM_WORDS + 1)[:, None])
    ratio = (lengths + TINY) / (wanted + SMALL)
    with np.errstate(over="ignore", under="ignore"):
        brevity = np.where(ratio < 1, np.exp(1 - 1 / ratio), 1.0)
    return np.asarray(mean * brevity)
