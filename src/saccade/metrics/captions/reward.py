"""What a sampled caption earns in self-critical training (Rennie et al.; CVPR 2017): CIDEr-D and BLEU-4, weighted.

The end of a sentence is a word like any other: a caption that stops where the references stop earns for it, one that
was cut short does not. References must then have their <end> too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from saccade.batch import END, PAD, START
from saccade.core.errors import SaccadeError
from saccade.metrics.captions.bleu import Bleu
from saccade.metrics.captions.cider import CiderD, DocumentFrequencies
from saccade.metrics.captions.ngrams import Owners, PreparedReferences


class SelfCriticalReward:
    """`cider_weight` · CIDEr-D + `bleu_weight` · BLEU-4 of rows of word ids."""

    def __init__(
        self,
        references: Sequence[Sequence[Any]],
        document_frequencies: DocumentFrequencies | None = None,
        cider_weight: float = 1.0,
        bleu_weight: float = 0.0,
    ) -> None:
        """References are rows of word ids for each picture; document frequencies are of the same ids."""
        if not cider_weight and not bleu_weight:
            raise SaccadeError("a reward needs cider_weight or bleu_weight to be other than 0")
        prepared = PreparedReferences([word_rows(rows) for rows in references])
        self.cider_weight, self.bleu_weight = cider_weight, bleu_weight
        self.cider_d = CiderD(prepared, document_frequencies)
        self.bleu = Bleu(prepared)

    def __call__(self, words: Any, owners: Owners = None) -> Float[np.ndarray, " row"]:
        """The reward of each row, against the references of the picture that owns it."""
        rows = word_rows(words)
        reward = np.zeros(len(rows))
        if self.cider_weight:
            reward += self.cider_weight * self.cider_d.score(rows, owners)
        if self.bleu_weight:
            reward += self.bleu_weight * self.bleu.score(rows, owners)[3]
        return reward


def word_rows(words: Any) -> list[list[int]]:
    """Rows of ids (an array, a tensor, lists) as lists: up to and with <end>, without <start> and padding."""
    rows: list[list[int]] = words.tolist() if hasattr(words, "tolist") else [list(map(int, row)) for row in words]
    kept = []
    for row in rows:
        length = row.index(END) + 1 if END in row else len(row)
        kept.append([word for word in row[:length] if word not in (PAD, START)])
    return kept
