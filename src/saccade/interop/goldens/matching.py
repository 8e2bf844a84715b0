"""The golden cases of the matching papers, which store the same in the same way.

A case is NAME.io.npz with NAME.pth.tar, which may lie there in several containers. It holds pictures, captions, one
training batch, embeddings, scores, losses and gradient norms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from saccade.batch import ImageCode, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import Options, load_arrays
from saccade.interop.harness import EMBEDDING, LOSS, Case, Difference, Table, difference, memo, of_gradient, unmasked
from saccade.interop.importer import Imported, Importer
from saccade.interop.words import vocabulary_beside
from saccade.metrics import ranks, summary
from saccade.models import Matcher
from saccade.nn import Negatives, triplet_loss

METRICS = ("r1", "r5", "r10", "medr", "meanr")
NEGATIVES: dict[str, Negatives] = {"sum": "all", "max": "hardest"}  # the official names of our two losses
M = TypeVar("M", bound=Matcher)
Codes = tuple[ImageCode, TextCode]


class MatchingCase(Generic[M]):
    """A case with its model, its pictures and captions, and its training batch: picture p with caption p."""

    def __init__(self, case: Case, imported: Imported[M]) -> None:
        self.case, self.imported, self.model = case, imported, imported.model
        self.images = unmasked(case.tensor("images"))
        if "boxes" in case.stored:
            self.images = replace(self.images, boxes=case.tensor("boxes"))
        tokens, lengths = case.tensor("captions"), case.tensor("lengths")
        self.texts = TextBatch(tokens, torch.arange(tokens.shape[1]) < lengths[:, None])
        pictures, captions = (case.tensor(f"batch_{side}_idx") for side in ("img", "cap"))
        self.batch_images, self.batch_texts = self.images.select(pictures), self.texts.select(captions).trimmed()

    @property
    def options(self) -> Options:
        return self.imported.source.options

    @property
    def margin(self) -> float:
        return float(self.options.get("margin", 0.2))

    @cached_property
    def codes(self) -> Codes:
        return self.model.encode_images(self.images), self.model.encode_texts(self.texts)

    @cached_property
    def batch_codes(self) -> Codes:
        return self.model.encode_images(self.batch_images), self.model.encode_texts(self.batch_texts)

    @cached_property
    def sims(self) -> Tensor:
        return self.model.similarity(*self.codes)

    @cached_property
    def batch_scores(self) -> Tensor:
        return self.model.similarity(*self.batch_codes)

    def loss(self, tag: str) -> Tensor:
        """The training batch's loss, to be differentiated; `tag` names it in the stored keys."""
        return triplet_loss(self.model(self.batch_images, self.batch_texts), self.margin, NEGATIVES[tag])

    def official_name(self, stored: str) -> str:
        """The weight that `gradnorm_TAG__…` names."""
        return stored

    @memo
    def gradients(self, tag: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the official gradients of it, by the names of the checkpoint."""
        with torch.enable_grad():
            self.model.zero_grad()
            loss = self.loss(tag)
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), self.imported.gradients()

    def gradient_norm(self, tag: str, name: str) -> Difference:
        """Of one weight, of a group (`group_img_enc`) or of all (`total`); −1 is stored where none must arrive."""
        found = self.gradients(tag)[1]
        group = self.official_name(name.removeprefix("group_") + ".")
        chosen = [
            value
            for key, value in found.items()
            if name == "total"
            or (key.startswith(group) if name.startswith("group_") else key == self.official_name(name))
        ]
        if not chosen:
            return Difference(float("inf"))
        norm = float(torch.stack([value.norm() for value in chosen]).norm())
        stored = float(self.case.stored[f"gradnorm_{tag}__{name}"])
        return Difference(norm, 1e-6) if stored == -1 else Difference(abs(norm - stored))

    def recalls(self, way: str) -> np.ndarray:
        """The official recalls and ranks of the table of scores."""
        table = self.sims.numpy()
        found = ranks(table, np.arange(table.shape[1]) // (table.shape[1] // table.shape[0]))
        figures = summary(found.image_to_text if way == "i2t" else found.text_to_image)
        return np.array([figures[name] for name in METRICS])


G = TypeVar("G", bound=MatchingCase[Any])


def opens(
    opened: Callable[[Case, Imported[Any]], G],
    importer: Importer[Any],
    containers: tuple[str, ...] = (),
    more: Callable[[Path, str], Mapping[str, Tensor]] = lambda folder, name: {},
) -> Callable[[Path], Iterator[G]]:
    """The cases of a folder; all containers of a checkpoint must hold the same weights.

    `more` finds the weights of a case that its checkpoint does not hold.
    """

    def cases(folder: Path) -> Iterator[G]:
        vocabulary = vocabulary_beside(folder)
        for path in sorted(folder.glob("*.io.npz")):
            name = path.name.removesuffix(".io.npz")
            endings = ("pth.tar", "legacy.pth.tar", *containers)
            files = [file for end in endings if (file := folder / f"{name}.{end}").exists()]
            if not files:
                raise SaccadeError(f"{path} has no checkpoint beside it: expected {name}.pth.tar")
            imported = [importer.read(file, vocabulary, more(folder, name)) for file in files]
            case, first = Case(name, load_arrays(path)), imported[0].model
            for file, other in zip(files[1:], imported[1:], strict=True):
                state, own = other.model.state_dict(), first.state_dict()
                alike = state.keys() == own.keys() and other.model.config == first.config
                worst = max(difference(state[key], own[key]) for key in own) if alike else float("inf")
                case.check(f"container {file.name.removeprefix(f'{name}.')}", worst, 0.0)
            yield opened(case, imported[0])

    return cases


EMBEDDINGS: Table = {
    "img_emb": (lambda c: c.codes[0].regions, EMBEDDING),
    "cap_emb": (lambda c: c.codes[1].words, EMBEDDING),
    "batch_img_emb": (lambda c: c.batch_codes[0].regions, EMBEDDING),
    "batch_cap_emb": (lambda c: c.batch_codes[1].words, EMBEDDING),
    "cap_emb_len": (lambda c: c.texts.lengths, 0.0),
}
RECALLS: Table = {
    r"metrics_(i2t|t2i)": (lambda c, way: c.recalls(way), 1e-6),
}


def gradients(tags: str) -> Table:
    """`gradloss_TAG` and `gradnorm_TAG__…`, for the tags of this pattern."""
    return {
        rf"gradloss_({tags})": (lambda c, tag: c.gradients(tag)[0], LOSS),
        rf"gradnorm_({tags})__(.+)": (lambda c, *names: c.gradient_norm(*names), of_gradient),
    }
