"""CAMP against what the official code computed: encoders, pooled pairs, scores, losses, gradients of four variants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import ImageCode, TextCode
from saccade.interop.matching.camp import PLACES, import_camp, our_parameter
from saccade.interop.matching.cases import Inputs, compare_gradient_norms, compare_metrics, open_cases, take_inputs
from saccade.interop.options import Options
from saccade.interop.verification import EMBEDDING, LOSS, SIMILARITY, Case, verifier
from saccade.models import Camp
from saccade.nn import Negatives, binary_loss, triplet_loss

NEGATIVES: dict[str, Negatives] = {"sum": "all", "max": "hardest"}
LOSSES = [f"{kind}_{negatives}" for kind in ("BCE", "hinge") for negatives in NEGATIVES]


@verifier("camp")
def verify_camp(folder: Path) -> Iterator[Case]:
    for case, model, option in open_cases(folder, import_camp, ("plainopt.pth.tar",)):
        _verify_case(case, model, take_inputs(case), option)
        yield case


def _verify_case(case: Case, model: Camp, inputs: Inputs, option: Options) -> None:
    with torch.no_grad():
        images, texts = model.encode_images(inputs.images), model.encode_texts(inputs.texts)
        batch = model.encode_images(inputs.batch_images), model.encode_texts(inputs.batch_texts)
        table, scores, joint = model.similarity(images, texts), model.similarity(*batch), _joint(model, *batch)
    captions = {"cap_emb": _in_places(texts.words), "batch_cap_emb": _in_places(batch[1].words)}
    case.compare_stored({"img_emb": images.regions, "batch_img_emb": batch[0].regions, **captions}, EMBEDDING)
    case.compare_stored({"cap_mask": _in_places(texts.mask[:, :, None].long())[:, :, 0]}, 0.0)
    case.compare_stored({"sims": table, "batch_scores": scores}, SIMILARITY)
    case.compare_stored({"batch_joint": joint}, EMBEDDING)
    compare_metrics(case, table.numpy())
    margin = float(option("margin"))
    losses = {name: _loss(name, scores, margin) for name in LOSSES}
    official = losses["BCE_max" if option("max_violation") else "BCE_sum"]  # whatever loss_func says
    case.compare_stored({"loss_official": official, **{f"loss_{k}": v for k, v in losses.items()}}, LOSS)
    for tag in LOSSES:
        if any(re.match(rf"grad(loss|norm)_{tag}\b", key.replace("__", " ")) for key in case.stored):
            loss = _loss(tag, model(inputs.batch_images, inputs.batch_texts), margin)
            compare_gradient_norms(case, tag, loss, model, lambda name: our_parameter(name, model.config.rounds))


def _in_places(values: Tensor) -> Tensor:
    """Padded to the places that the official code has for the words of every caption."""
    return F.pad(values, (0, 0, 0, PLACES - values.shape[1]))


def _joint(model: Camp, images: ImageCode, texts: TextCode) -> Tensor:
    """Each pair's pooled vectors, the picture's beside the sentence's, before they are scored."""
    return torch.cat(model.pooled(images, texts), dim=-1)


def _loss(name: str, scores: Tensor, margin: float) -> Tensor:
    kind, _, negatives = name.partition("_")
    if kind == "BCE":
        return binary_loss(scores, NEGATIVES[negatives])
    return triplet_loss(scores, margin, NEGATIVES[negatives])
