"""A model's words may start from vectors that others learned from much text: `task.vectors=glove-6b-50d`."""

from __future__ import annotations

import torch

from saccade.errors import SaccadeError
from saccade.language.vectors import WordVectors, load_vectors
from saccade.language.vocabulary import SPECIAL
from saccade.models import Model
from saccade.nn import WordEncoder


def start_words(model: Model, vectors: str) -> WordVectors:
    """Give the words that `vectors` (a table by name, or a file) knows their vectors; the rest stay random."""
    encoders = [module for module in model.modules() if isinstance(module, WordEncoder)]
    if not encoders:
        raise SaccadeError(f"task.vectors={vectors}: this model has no table of words to fill")
    words = model.vocabulary.words
    found = load_vectors(vectors, words[len(SPECIAL) :])
    if not found.words:
        raise SaccadeError(f"{vectors} has a vector for none of the {len(found.missing):,} words of the captions")
    row = {word: n for n, word in enumerate(words)}
    rows = torch.tensor([row[word] for word in found.words], dtype=torch.long)
    for encoder in encoders:
        encoder.set_vectors(torch.from_numpy(found.matrix), rows)
    return found
