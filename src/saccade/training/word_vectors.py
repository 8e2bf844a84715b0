"""A model's words may start from vectors that others learned from much text: `task.vectors=glove-6b-50d`."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.language.vectors import WordVectors, load_vectors
from saccade.language.vocabulary import SPECIAL
from saccade.models import Model


def start_words(model: Model, vectors: str) -> WordVectors:
    """Give the words that `vectors` (a table by name, or a file) knows their vectors; the rest stay random."""
    words = model.vocabulary.words
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m.num_embeddings == len(words)]
    if not tables:
        raise SaccadeError(f"task.vectors={vectors}: this model has no table of words to fill")
    found = load_vectors(vectors, words[len(SPECIAL) :])
    if not found.words:
        raise SaccadeError(f"{vectors} has a vector for none of the {len(found.missing):,} words of the captions")
    row = {word: n for n, word in enumerate(words)}
    rows = torch.tensor([row[word] for word in found.words], dtype=torch.long)
    for table in tables:
        _fill(table, torch.from_numpy(found.matrix), rows)
    return found


@torch.no_grad()
def _fill(table: nn.Embedding, matrix: Float[Tensor, "word width"], rows: Int64[Tensor, " word"]) -> None:
    """Start these words from known vectors, which fill the first columns; further columns keep their start."""
    width = matrix.shape[1]
    if width > table.embedding_dim:
        raise SaccadeError(
            f"word vectors of {width} numbers do not fit into word_dim={table.embedding_dim}: make it {width}"
        )
    table.weight[rows, :width] = matrix.to(table.weight)
