"""SCAN against what the official code computed: embeddings, 40 modes of similarity, losses, gradients, one step."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.batch import ImageCode, RegionBatch, TextBatch, TextCode
from saccade.interop.matching.cases import Inputs, compare_metrics, open_cases, take_inputs
from saccade.interop.matching.scan import NORMALISERS, PARTS, POOLS, QUERIES, import_scan, our_parameter
from saccade.interop.options import Options
from saccade.interop.verification import EMBEDDING, GRADIENT, LOSS, SIMILARITY, Case, verifier
from saccade.models import Scan
from saccade.nn import Attend, triplet_loss
from saccade.ops import AttentionForm

SHARPNESS = {"t2i": (9.0, 6.0), "i2t": (4.0, 5.0)}  # λ₁, λ₂ of the stored modes
SUMMED = 2e-5  # allowed where a similarity is a sum over queries
TRAINED_MODE = ("t2i", "LogSumExp", "clipped_l2norm")  # whose gradients are stored


@verifier("scan")
def verify_scan(folder: Path) -> Iterator[Case]:
    for case, model, options in open_cases(folder, import_scan):
        yield _verify_case(case, model, options)


@torch.no_grad()
def _encode(model: Scan, images: RegionBatch, texts: TextBatch) -> tuple[ImageCode, TextCode]:
    return model.encode_images(images), model.encode_texts(texts)


def _verify_case(case: Case, model: Scan, options: Options) -> Case:
    given = take_inputs(case)
    images, texts = _encode(model, given.images, given.texts)
    batch = _encode(model, given.batch_images, given.batch_texts)
    embeddings = {"img_emb": images.regions, "cap_emb": texts.words}
    case.compare_stored(embeddings, EMBEDDING)
    case.compare_stored({"batch_img_emb": batch[0].regions, "batch_cap_emb": batch[1].words}, EMBEDDING)
    case.compare_stored({"cap_emb_len": given.texts.lengths}, 0.0)
    _verify_modes(case, images, texts, batch, float(options.get("margin", 0.2)))
    if "metrics_i2t" in case.stored or "sims" in case.stored:
        table = model.similarity(images.to(dtype=torch.float64), texts.to(dtype=torch.float64)).detach().numpy()
        case.compare_stored({"sims": table}, SIMILARITY)
        compare_metrics(case, table)
    for negatives in ("sum", "max"):
        if f"grad_{negatives}__loss" in case.stored:
            _verify_gradients(case, copy.deepcopy(model), options, given, negatives)
    return case


def _attend(direction: str, pool: str, normaliser: str) -> Attend:
    sharpness, pool_sharpness = SHARPNESS[direction]
    form = AttentionForm(NORMALISERS[normaliser], sharpness, pool=POOLS[pool], pool_sharpness=pool_sharpness)
    return Attend(QUERIES[direction], form)


def _verify_modes(
    case: Case, images: ImageCode, texts: TextCode, batch: tuple[ImageCode, TextCode], margin: float
) -> None:
    """Every stored direction × pooling × normaliser, in float64 and float32, with its two losses."""
    for mode in itertools.product(QUERIES, POOLS, NORMALISERS):
        attend, suffix = _attend(*mode), "__".join(mode)
        tolerance = SUMMED if mode[1] == "Sum" else SIMILARITY
        if f"sims64__{suffix}" in case.stored:
            double = attend.similarity(images.to(dtype=torch.float64), texts.to(dtype=torch.float64))
            case.compare(f"sims64__{suffix}", double, tolerance)
        if f"sims32__{suffix}" in case.stored:
            case.compare(f"sims32__{suffix}", attend.similarity(images, texts), tolerance)
        scores = attend.similarity(*batch)
        if f"batch_scores__{suffix}" in case.stored:
            case.compare(f"batch_scores__{suffix}", scores, tolerance)
        for stored, negatives in (("sum", "all"), ("max", "hardest")):
            if f"loss_{stored}__{suffix}" in case.stored:
                case.compare(f"loss_{stored}__{suffix}", triplet_loss(scores, margin, negatives), LOSS)  # type: ignore[arg-type]


def _verify_gradients(case: Case, model: Scan, options: Options, given: Inputs, negatives: str) -> None:
    """The full gradient of the batch loss, its norms, and the parameters after one official training step."""
    loss = triplet_loss(
        _gradient_mode(case, negatives).similarity(
            model.encode_images(given.batch_images), model.encode_texts(given.batch_texts)
        ),
        float(options.get("margin", 0.2)),
        "hardest" if negatives == "max" else "all",
    )
    loss.backward()  # type: ignore[no-untyped-call]
    case.compare(f"grad_{negatives}__loss", loss, LOSS)
    parameters = dict(model.named_parameters())
    gradients = {k: v.grad if v.grad is not None else torch.zeros_like(v) for k, v in parameters.items()}
    prefix = re.compile(rf"(grad|gradnorm|step1)_{negatives}__(.+)")
    wanted = {key: match for key in case.stored if (match := prefix.fullmatch(key)) and not key.endswith("__loss")}
    for key, match in wanted.items():
        if match[1] == "grad":
            scale = float(np.abs(case.take(key)).max())
            case.compare(key, gradients[our_parameter(match[2])], GRADIENT * max(scale, 1e-3))
        elif match[1] == "gradnorm":
            norm = float(case.take(key))
            case.compare(key, _norm(gradients, match[2]), GRADIENT * norm if norm > 1e-3 else 1e-5)
    torch.nn.utils.clip_grad_norm_(parameters.values(), float(options("grad_clip")))
    torch.optim.Adam(parameters.values(), lr=float(options("learning_rate"))).step()
    for key, match in wanted.items():
        if match[1] == "step1":
            case.compare(key, parameters[our_parameter(match[2])], EMBEDDING)


def _gradient_mode(case: Case, negatives: str) -> Attend:
    """The mode whose stored loss is the one that was differentiated; the documented one where none is stored."""
    loss = float(case.stored[f"grad_{negatives}__loss"])
    for mode in (TRAINED_MODE, *itertools.product(QUERIES, POOLS, NORMALISERS)):
        stored = case.stored.get(f"loss_{negatives}__{'__'.join(mode)}")
        if stored is not None and abs(float(stored) - loss) < 1e-6:
            return _attend(*mode)
    return _attend(*TRAINED_MODE)


def _norm(gradients: dict[str, Tensor], name: str) -> float:
    """Of one parameter, of a group (`group_img_enc`) or of all (`total`)."""
    if name == "total":
        chosen = list(gradients.values())
    elif name.startswith("group_"):
        group = PARTS[name.removeprefix("group_")]
        chosen = [g for k, g in gradients.items() if k.startswith(f"{group}.")]
    else:
        chosen = [gradients[our_parameter(name)]]
    return float(torch.stack([g.double().norm() for g in chosen]).norm())
