"""What the official checkpoints of the matching papers share, and what their goldens store in the same way.

All of them grew out of one code base: a `.pth.tar` holds epoch, model, best_rsum and opt (the options of its command
line), and a golden case holds pictures, captions, one training batch, embeddings, scores, losses and gradient norms.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from saccade.batch import RegionBatch, TextBatch
from saccade.errors import SaccadeError
from saccade.interop.checkpoint import need, read_checkpoint
from saccade.interop.verification import Case, load_arrays
from saccade.interop.vocabulary import numbered_words, vocabulary_beside
from saccade.language import Vocabulary
from saccade.metrics import ranks, summary
from saccade.models import Matcher
from saccade.models.fragments import FragmentMatcher

EMBEDDING, SIMILARITY, LOSS, GRADIENT = 1e-5, 1e-5, 1e-4, 1e-3  # allowed differences; of gradients relative
METRICS = ("r1", "r5", "r10", "medr", "meanr")
M = TypeVar("M", bound=Matcher)


@dataclass(frozen=True)
class Options:
    """The options of an official command line, as a checkpoint stores them."""

    values: Mapping[str, Any]
    path: Path | str
    system: str

    @staticmethod
    def of(checkpoint: Mapping[str, Any], path: Path | str, system: str) -> Options:
        found = need(checkpoint, "opt", (Namespace, dict), path)
        return Options(vars(found) if isinstance(found, Namespace) else found, path, system)

    def __call__(self, name: str, table: Mapping[Any, Any] | None = None) -> Any:
        """The value of an option that must be there; with a table, what the table has for it."""
        if name not in self.values:
            raise SaccadeError(f'{self.path}: the options have no "{name}", so this is no {self.system} checkpoint')
        if table is None:
            return self.values[name]
        if self.values[name] not in table:
            expected = ", ".join(map(str, table))
            raise SaccadeError(f"{self.path}: {name} is {self.values[name]!r}, expected one of {expected}")
        return table[self.values[name]]

    def get(self, name: str, default: Any) -> Any:
        return self.values.get(name, default)


def fitting_vocabulary(vocabulary: Vocabulary | None, embedding: Tensor | None, path: Path | str) -> Vocabulary:
    """The vocabulary of these word vectors; without one, words are named by their numbers."""
    if embedding is None:
        raise SaccadeError(f"{path}: the word part has no embed.weight")
    if vocabulary is not None and len(vocabulary) != len(embedding):
        raise SaccadeError(f"{path} knows {len(embedding)} words, the vocabulary has {len(vocabulary)}")
    return vocabulary or numbered_words(len(embedding))


def fragment_settings(option: Options) -> dict[str, Any]:
    """What all of them call alike: the encoders of regions and words."""
    return {
        "region_dim": int(option("img_dim")),
        "word_dim": int(option("word_dim")),
        "dim": int(option("embed_size")),
        "layers": int(option("num_layers")),
        "bidirectional": bool(option("bi_gru")),
        "region_encoder": "weight_norm" if option.get("precomp_enc_type", "basic") == "weight_norm" else "linear",
        "unit_regions": not option.get("no_imgnorm", False),
        "unit_words": not option.get("no_txtnorm", False),
    }


def load_encoders(
    model: FragmentMatcher, regions: Mapping[str, Tensor], words: Mapping[str, Tensor], path: Path | str
) -> None:
    """The official image and text encoders into ours."""
    wanted = model.regions.state_dict()
    regions = {k: v for k, v in regions.items() if k in wanted}  # the official code drops others too
    if "fc.weight_g" in regions:  # old and new PyTorch shape a scalar differently
        regions["fc.weight_g"] = regions["fc.weight_g"].reshape(())
    load_official(model.regions, regions, path)
    load_official(model.words, words, path)


def load_official(module: nn.Module, state: Mapping[str, Tensor], path: Path | str) -> None:
    """Weights into a module of the same shapes, or a sentence on what does not fit."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise SaccadeError(f"{path}: the weights do not fit the options: {reason}") from error


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


def compare_stored(case: Case, found: Mapping[str, Tensor | np.ndarray | float], tolerance: float) -> None:
    """Each of these outputs that the case stores."""
    for key, value in found.items():
        if key in case.stored:
            case.compare(key, value, tolerance)


def compare_metrics(case: Case, table: np.ndarray) -> None:
    """The official recalls and ranks of a table of scores, both ways."""
    found = ranks(table, np.arange(table.shape[1]) // (table.shape[1] // table.shape[0]))
    sides = {"metrics_i2t": found.image_to_text, "metrics_t2i": found.text_to_image}
    compare_stored(case, {k: np.array([summary(v)[m] for m in METRICS]) for k, v in sides.items()}, 1e-6)


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
