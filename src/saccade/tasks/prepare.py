"""What a model is built from beside its settings: what its training data say (`Prepared`), words and their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.vectors import WordVectors, load_vectors
from saccade.language.vocabulary import SPECIAL
from saccade.models import Model

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Prepared:
    """What the training split tells a model that is about to be built; a task fills in what its models need."""

    vocabulary: Vocabulary | None = None
    vectors: WordVectors | None = None  # what its words start from
    labels: tuple[str, ...] = ()  # answers, or the kinds of things there are
    widths: Mapping[str, int] = field(default_factory=dict)  # settings that follow from the data: region_dim
    extractor: str | None = None  # what made the region features
    notes: tuple[str, ...] = ()  # to be printed when a run begins
    facts: Mapping[str, Any] = field(default_factory=dict)  # to be kept with the run
    texts: Sequence[str] = ()  # what `vocabulary` was made of, for models that make their own; none: it is to be taken


def prepare_words(texts: Sequence[str], min_count: int, vectors: str | None = None) -> Prepared:
    """The words that occur at least `min_count` times, and the vectors that a table or file has for them.

    Raises: SaccadeError if no word does, or the table knows none of them.
    """
    vocabulary = Vocabulary.build(texts, min_count)
    if len(vocabulary) == len(SPECIAL):
        raise SaccadeError(f"no word of the training captions occurs task.min_count={min_count} times")
    found = load_vectors(vectors, vocabulary.words[len(SPECIAL) :]) if vectors else None
    if found is not None and not found.words:
        raise SaccadeError(f"{vectors} has a vector for none of the {len(found.missing):,} words of the captions")
    notes = (found.describe(),) if found is not None else ()
    return Prepared(vocabulary, found, notes=notes, facts={"words": len(vocabulary)}, texts=texts)


def build_model(kind: type[M], config: Any, prepared: Prepared) -> M:
    """A fresh model of a class that is made from settings, a vocabulary and the name of its extractor."""
    assert prepared.vocabulary is not None
    own = {setting.name for setting in fields(config)}
    config = replace(config, **{name: width for name, width in prepared.widths.items() if name in own})
    vocabulary = kind.own_vocabulary(config, prepared.texts) if prepared.texts else None
    model = kind(config, vocabulary or prepared.vocabulary, prepared.extractor)
    model.begin()
    if prepared.vectors is not None:
        fill_words(model, prepared.vectors)
    return model


def fill_words(model: Model, vectors: WordVectors) -> None:
    """Start the words that have a vector from it; the rest stay random."""
    words = model.vocabulary.words
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m.num_embeddings == len(words)]
    if not tables:
        raise SaccadeError(f"task.vectors: {model.name} has no table of words to fill")
    row = {word: n for n, word in enumerate(words)}
    rows = torch.tensor([row[word] for word in vectors.words], dtype=torch.long)
    for table in tables:
        _fill(table, torch.from_numpy(vectors.matrix), rows)


@torch.no_grad()
def _fill(table: nn.Embedding, matrix: Float[Tensor, "word width"], rows: Int64[Tensor, " word"]) -> None:
    """Known vectors fill the first columns; further columns keep their start."""
    width = matrix.shape[1]
    if width > table.embedding_dim:
        raise SaccadeError(
            f"word vectors of {width} numbers do not fit into word_dim={table.embedding_dim}: make it {width}"
        )
    table.weight[rows, :width] = matrix.to(table.weight)
