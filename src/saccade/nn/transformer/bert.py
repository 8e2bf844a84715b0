"""Weights of a BERT (or MiniLM) into layers and word embeddings of ours, by the names that Hugging Face gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.core.weights import read_weights
from saccade.language.vocabulary import SPECIAL, Vocabulary
from saccade.language.wordpieces import OFFICIAL, bert_folder, official_order
from saccade.nn.transformer.blocks import Layer
from saccade.nn.transformer.embeddings import WordEmbeddings

PARTS = {
    "project": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "norm2": "output.LayerNorm",
}


def load_layer(layer: Layer, weights: Mapping[str, Tensor], place: str) -> None:
    """The layer `place` of a BERT: `encoder.layer.3`."""
    for kind in ("weight", "bias"):
        parts = [weights[f"{place}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
        getattr(layer.qkv, kind).copy_(torch.cat(parts))
    for ours, theirs in PARTS.items():
        load_part(getattr(layer, ours), weights, f"{place}.{theirs}")


def load_part(module: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    module.load_state_dict({kind: weights[f"{name}.{kind}"] for kind in ("weight", "bias")})


@torch.no_grad()
def load_bert(place: str, vocabulary: Vocabulary, words: WordEmbeddings, layers: Sequence[nn.Module]) -> int:
    """Start word embeddings and the first `layers` from a BERT by `bert_folder`'s names; how many layers it had.

    Raises: SaccadeError if it is of another width, or has no such weights.
    """
    folder = bert_folder(place)
    path = folder / "model.safetensors"
    weights = {name.removeprefix("bert."): weight for name, weight in read_weights(path).items()}
    try:
        heads = read_json(folder / "config.json")["num_attention_heads"] if (folder / "config.json").is_file() else None
        table = weights["embeddings.word_embeddings.weight"]
        if table.shape[1] != words.words.embedding_dim:
            raise SaccadeError(f"{place} is {table.shape[1]} wide: give model.dim={table.shape[1]}")
        _fill_words(Path(folder), vocabulary, words, weights)
        found = 0
        for number, layer in enumerate(layers):
            if f"encoder.layer.{number}.output.dense.weight" not in weights:
                break
            assert isinstance(layer, Layer)
            if heads is not None and layer.heads != heads:
                raise SaccadeError(f"{place} has {heads} heads: give model.heads={heads}")
            load_layer(layer, weights, f"encoder.layer.{number}")
            found += 1
    except (KeyError, RuntimeError, TypeError) as error:
        raise SaccadeError(f"{path} does not fit the model as a BERT's weights: {error}") from error
    return found


def _fill_words(folder: Path, vocabulary: Vocabulary, words: WordEmbeddings, weights: Mapping[str, Tensor]) -> None:
    """Pieces by name, as many positions as both have, and the first segment."""
    ours_of = dict(zip(OFFICIAL, SPECIAL, strict=False))
    theirs = {ours_of.get(piece, piece): row for row, piece in enumerate(official_order(folder))}
    known = [(n, theirs[word]) for n, word in enumerate(vocabulary.words) if word in theirs]
    new, old = torch.tensor(known).T
    words.words.weight[new] = weights["embeddings.word_embeddings.weight"][old].to(words.words.weight)
    for ours, name in ((words.positions, "position"), (words.segments, "token_type")):
        if ours is None:
            continue
        given = weights[f"embeddings.{name}_embeddings.weight"]
        count = min(len(given), len(ours.weight))
        ours.weight[:count] = given[:count].to(ours.weight)
    load_part(words.norm, weights, "embeddings.LayerNorm")
