"""Training in stages: `start=FOLDER` begins with another run's weights, `only=NAMES` trains a part of the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.core.weights import read_weights
from saccade.language import Vocabulary
from saccade.models import Model, find_model
from saccade.models.base.model import VOCABULARY, WEIGHTS


@dataclass(frozen=True)
class Taken:
    """What a model took over from another."""

    folder: Path
    names: tuple[str, ...]  # of the weights that were taken
    fresh: tuple[str, ...]  # of those that were not there, or of another shape
    words: int  # that both know; their vectors are taken by name where the vocabularies differ
    vocabulary: int  # words of the new model

    def describe(self) -> str:
        text = f"started from {self.folder}: {len(self.names)} of {len(self.names) + len(self.fresh)} weights taken"
        if self.words < self.vocabulary:
            text += f", {self.words:,} of {self.vocabulary:,} words known there"
        return f"{text}, fresh: {', '.join(self.fresh)}" if self.fresh else text


@torch.no_grad()
def start_from(model: Model, folder: Path | str) -> Taken:
    """Take every weight of the same name and shape from a model or run folder; the rest stays as it is.

    Tables of words are taken word by word, so that the other model may know other words.
    """
    found, _ = find_model(folder, Model)
    theirs, ours = read_weights(found / WEIGHTS), model.state_dict()
    words = model.vocabulary.words if model.reads_text else ()
    known = Vocabulary.load(found / VOCABULARY).words if words else ()
    row = {word: n for n, word in enumerate(known)}
    shared = [(n, row[word]) for n, word in enumerate(words) if word in row]
    tables = _tables_of_words(model, len(words)) if words else set()
    names = []
    for name, own in ours.items():
        other = theirs.get(name)
        if other is None:
            continue
        if name in tables and known != words:
            if len(other) != len(known) or other.shape[1:] != own.shape[1:]:
                continue
            new, old = torch.tensor(shared).T
            own[new] = other[old].to(own)
        elif other.shape == own.shape:
            own.copy_(other)
        else:
            continue
        names.append(name)
    if not names:
        raise SaccadeError(f"start={folder}: it has no weight of the same name and shape as this {model.name}")
    fresh = tuple(name for name in ours if name not in names)
    return Taken(found, tuple(names), fresh, len(shared), len(words))


def _tables_of_words(model: Model, words: int) -> set[str]:
    """The weights with one row for every word: embeddings, and layers that answer with a word."""

    def by_word(module: nn.Module) -> bool:
        rows = getattr(module, "num_embeddings", getattr(module, "out_features", None))
        return isinstance(module, nn.Embedding | nn.Linear) and rows == words

    layers = {name: module for name, module in model.named_modules() if by_word(module)}
    return {
        f"{name}.{kind}" for name, module in layers.items() for kind in dict(module.named_parameters(recurse=False))
    }


def train_only(model: nn.Module, names: str) -> int:
    """Leave every weight as it is but those whose names begin with one of `names` (divided by commas); count these."""
    own = [name for name, _ in model.named_parameters()]
    prefixes = [part.strip() for part in names.split(",")]
    for prefix in prefixes:
        if not prefix or not any(name.startswith(prefix) for name in own):
            tops = list(dict.fromkeys(name.split(".")[0] for name in own))
            hint = f"{did_you_mean(prefix, tops)} (there are: {', '.join(tops)})"
            raise SaccadeError(f'only={names}: no weight begins with "{prefix}"{hint}')
    for name, weight in model.named_parameters():
        if not name.startswith(tuple(prefixes)):
            weight.requires_grad_(False)
    return sum(weight.requires_grad for weight in model.parameters())
