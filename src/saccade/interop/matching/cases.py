"""The golden cases of the matching papers, which store the same in the same way.

A case holds pictures, captions, one training batch, embeddings, scores, losses and gradient norms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from saccade.batch import RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import read_checkpoint
from saccade.interop.options import Options
from saccade.interop.verification import GRADIENT, LOSS, Case, load_arrays
from saccade.interop.vocabulary import vocabulary_beside
from saccade.language import Vocabulary
from saccade.metrics import ranks, summary
from saccade.models import Matcher

METRICS = ("r1", "r5", "r10", "medr", "meanr")
M = TypeVar("M", bound=Matcher)


def open_cases(
    folder: Path, load: Callable[[Path, Vocabulary | None], M], containers: tuple[str, ...] = ()
) -> Iterator[tuple[Case, M, Options]]:
    """Every case of a golden folder with its model; all containers of one checkpoint must hold the same weights."""
    vocabulary = vocabulary_beside(folder)
    for path in sorted(folder.glob("*.io.npz")):
        name = path.name.removesuffix(".io.npz")
        endings = ("pth.tar", "legacy.pth.tar", *containers)
        files = [file for end in endings if (file := folder / f"{name}.{end}").exists()]
        if not files:
            raise SaccadeError(f"{path} has no checkpoint beside it: expected {name}.pth.tar")
        models = [load(file, vocabulary) for file in files]
        case, first = Case(name, load_arrays(path)), models[0].state_dict()
        for file, model in zip(files[1:], models[1:], strict=True):
            state = model.state_dict()
            alike = state.keys() == first.keys() and model.config == models[0].config
            worst = max(float((state[key] - first[key]).abs().max()) for key in first) if alike else float("inf")
            case.check(f"container {file.name.removeprefix(f'{name}.')}", worst, 0.0)
        yield case, models[0], Options.of(read_checkpoint(files[0]), files[0], models[0].name)


@dataclass(frozen=True)
class Inputs:
    """The pictures and captions of a case, and its training batch: picture p with caption p."""

    images: RegionBatch
    texts: TextBatch
    batch_images: RegionBatch
    batch_texts: TextBatch


def take_inputs(case: Case) -> Inputs:
    """The inputs as the official code was given them; boxes too where a case has some."""
    features = torch.from_numpy(case.take("images"))
    count = features.shape[:2]
    boxes = torch.from_numpy(case.take("boxes")) if "boxes" in case.stored else torch.zeros(*count, 4)
    images = RegionBatch(features, torch.ones(count, dtype=torch.bool), boxes)
    tokens, lengths = torch.from_numpy(case.take("captions")), torch.from_numpy(case.take("lengths"))
    texts = TextBatch(tokens, torch.arange(tokens.shape[1]) < lengths[:, None])
    pairs = [torch.from_numpy(case.take(f"batch_{side}_idx")) for side in ("img", "cap")]
    return Inputs(images, texts, images.select(pairs[0]), texts.select(pairs[1]).trimmed())


def compare_metrics(case: Case, table: np.ndarray) -> None:
    """The official recalls and ranks of a table of scores, both ways."""
    found = ranks(table, np.arange(table.shape[1]) // (table.shape[1] // table.shape[0]))
    sides = {"metrics_i2t": found.image_to_text, "metrics_t2i": found.text_to_image}
    case.compare_stored({k: np.array([summary(v)[m] for m in METRICS]) for k, v in sides.items()}, 1e-6)


def compare_gradient_norms(
    case: Case, tag: str, loss: Tensor, model: nn.Module, our_parameter: Callable[[str], str | None]
) -> None:
    """`gradnorm_TAG__…` of one parameter, of a group (`group_img_enc`) or of all, after `loss.backward()`.

    `our_parameter` gives our name for an official one (None: it does not exist here, being unreachable there). Of a
    group it is asked for every official name of the group, so groups need no table of their own.
    """
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {k: v.grad.double() for k, v in model.named_parameters() if v.grad is not None}
    if f"gradloss_{tag}" in case.stored:
        case.compare(f"gradloss_{tag}", loss, LOSS)
    prefix = f"gradnorm_{tag}__"
    official = [key.removeprefix(prefix) for key in case.stored if key.startswith(prefix)]
    singles = [name for name in official if name != "total" and not name.startswith("group_")]
    for name in official:
        key, stored = prefix + name, float(case.stored[prefix + name])
        group = name.removeprefix("group_")
        chosen = [n for n in singles if name in ("total", n) or re.match(rf"{re.escape(group)}\.", n)]
        ours = [our_parameter(n) for n in chosen]
        norms = [gradients[n].norm() for n in ours if n is not None and n in gradients]
        if stored == -1:  # the official code never reaches it: nor may we
            case.check(key, float(torch.stack(norms).norm()) if norms else 0.0, 1e-6)
            case.used.add(key)
            continue
        norm = float(torch.stack(norms).norm()) if norms else 0.0
        case.compare(key, norm, GRADIENT * stored if stored > 1e-3 else 1e-5)
