"""CIDEr: Consensus-based Image Description Evaluation (Vedantam, Zitnick, Parikh; CVPR 2015).

An n-gram weighs as often as it is said, times how rare it is over pictures:

    g_n(s) = times in s · (log #pictures - log max(1, pictures whose references have it))
    CIDEr(c) = 10 · mean over n = 1 … 4 and references r of  ⟨g_n(c), g_n(r)⟩ / (‖g_n(c)‖ ‖g_n(r)‖)

CIDEr-D, the form that papers print under the name of CIDEr, cannot be won by repeating words or by length: the product
becomes ⟨min(g_n(c), g_n(r)), g_n(r)⟩ and each term is multiplied by exp(-(l_c - l_r)² / 2σ²) with σ = 6. The official
lengths count pairs of words, so a sentence of one word is as long as one of none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from saccade.metrics.captions.frequencies import DocumentFrequencies
from saccade.metrics.captions.ngrams import MAX_NGRAM_WORDS, Counted, Numbers, PreparedReferences, Word
from saccade.metrics.captions.score import Candidates, CaptionScore, References, check_captions

SIGMA = 6.0


class CiderD:
    """CIDEr-D against references that are prepared once: what self-critical training asks at every step."""

    def __init__(
        self,
        references: PreparedReferences | Sequence[Sequence[Sequence[Word]]],
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
                for shelf, table in zip(self.references.shelves, self.references.counted.ngrams.codes, strict=True)
            ]
        else:
            pictures = document_frequencies.pictures
            self._table, frequencies = document_frequencies.table(self.references.words)
        unseen = np.log(pictures)  # the last: of an n-gram that is nowhere, at index -1
        self._rarity = [np.append(unseen - np.log(np.maximum(1.0, each)), unseen) for each in frequencies]
        self._scales = [_inverse(norm) for _, norm in self._weigh(self.references.counted)]
        self._word_pairs = _word_pairs(self.references.counted)

    def score(
        self, candidates: Sequence[Sequence[Word]], owners: Sequence[int] | Numbers | None = None
    ) -> Float[np.ndarray, " candidate"]:
        """Of each candidate against the references of the picture that owns it (by default, one a picture)."""
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
        """For each n how rare the n-gram of every count is, and the norm of every sentence."""
        places: Sequence[Numbers | slice]
        places = [slice(0, -1)] * MAX_NGRAM_WORDS if counted.ngrams is self._table else self._table.find(counted.ngrams)
        for counts, place, every in zip(counted.counts, places, self._rarity, strict=True):
            rarity = every[place][counts.ngram]
            squares = (counts.times * rarity) ** 2
            yield rarity, np.sqrt(np.bincount(counts.sentence, weights=squares, minlength=len(counted.lengths)))


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
