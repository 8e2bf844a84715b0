"""Verify the tutorial's Show, Attend and Tell: teacher forcing, losses, gradients and beam searches, in float64."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import CaptionState, RegionBatch, Thought
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.decoding import Decoded, DecodingConfig, beam_search
from saccade.interop.captioning.show_attend_tell import import_tutorial, tutorial_places, word_map_ids
from saccade.interop.places import OfficialIds, Place, official_gradients
from saccade.interop.verification import GRADIENT, LOSS, Case, load_arrays, verifier
from saccade.language.vocabulary import START
from saccade.models import ShowAttendTell

SCORE = 1e-5
LONGEST = 51  # words, after which the tutorial's search gives up


@verifier("show_attend_tell_soft")
def verify_soft(folder: Path) -> Iterator[Case]:
    for place in folders_with_io(folder):
        maps = sorted(place.glob("WORDMAP*.json"))
        if not maps:
            raise SaccadeError(f"{place} has no WORDMAP.json")
        ids = word_map_ids(read_json(maps[0]), str(maps[0]), literal=True)
        files = sorted([*place.glob("*.pth"), *place.glob("*.pth.tar")])
        if not files:
            raise SaccadeError(f"{place} has no checkpoint: expected a .pth or .pth.tar file")
        models = [import_tutorial(file, ids).double() for file in files]
        case, first = Case(place.name, load_arrays(place / "io.npz")), models[0].state_dict()
        for file, model in zip(files[1:], models[1:], strict=True):
            same, other = (replace(m.config, dropout=0) for m in (models[0], model))  # weights do not tell of dropout
            gaps = [_gap(value, first[key]) for key, value in model.state_dict().items()] if same == other else []
            case.check(f"the same weights in {file.name}", max(gaps, default=float("inf")), 0.0)
        _verify_lesson(case, models[0], ids)
        _verify_beams(case, models[0], ids)
        yield case


def folders_with_io(folder: Path) -> list[Path]:
    """A case is a folder with io.npz; a folder of such folders has several."""
    return [path for path in (folder, *sorted(folder.iterdir())) if (path / "io.npz").is_file()]


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) if one.shape == other.shape else float("inf")


def _verify_lesson(case: Case, model: ShowAttendTell, ids: OfficialIds) -> None:
    """Teacher forcing in the official order, longest caption first; nothing is said after a caption's end."""
    lengths = torch.from_numpy(case.take("caption_lengths"))[:, 0]
    captions = torch.from_numpy(case.take("captions"))
    order = torch.from_numpy(case.take("sort_ind"))  # captions of one length may stand in any order
    if sorted(order.tolist()) != list(range(len(lengths))):
        raise SaccadeError(f"{case.name}: sort_ind is no order of {len(lengths)} captions")
    case.check("sort_ind", float((lengths[order] - lengths.sort(descending=True).values).abs().max()), 0.0)
    captions, steps = captions[order], lengths[order] - 1
    case.compare("captions_sorted", captions, 0.0)
    case.compare("decode_lengths", steps, 0.0)
    count = int(steps.max())
    wanted = torch.arange(count) < steps[:, None]
    state = model.start(_regions(case).select(order))
    model.zero_grad()
    thoughts = _tell(model, state, ids.read[captions[:, :count]])
    told = model.told(thoughts)
    logits = model.speak(torch.stack([thought.hidden for thought in thoughts], dim=1))[..., ids.said]
    scores, weights = logits * wanted[..., None], told.weights * wanted[..., None]
    case.compare("scores", scores, SCORE)
    case.compare("alphas", weights, SCORE)
    labels = ids.said[captions[:, 1 : count + 1]]
    missed = -told.log_probabilities.gather(2, labels[..., None])[..., 0].masked_fill(~wanted, 0)
    own = model.own_losses(told, labels, missed, wanted)["coverage_loss"]
    loss = missed.sum() / wanted.sum()
    case.compare("ce_loss", loss, LOSS)
    case.compare("alpha_reg", own, LOSS)
    case.compare("loss", loss + own, LOSS)
    (loss + own).backward()  # type: ignore[no-untyped-call]
    compare_norms(case, "grad_norms", case.take("grad_names").tolist(), model, tutorial_places(), ids)
    _compare_best(case, scores.detach())


def _regions(case: Case) -> RegionBatch:
    features = torch.from_numpy(case.take("encoder_out")).double().flatten(1, 2)
    count = features.shape[:2]
    return RegionBatch(features, torch.ones(count, dtype=torch.bool), torch.zeros(*count, 4))


def _tell(model: ShowAttendTell, state: CaptionState, words: Int[Tensor, "text step"]) -> list[Thought]:
    thoughts: list[Thought] = []
    for word in words.unbind(dim=1):
        thoughts.append(model.advance(word, thoughts[-1].state if thoughts else state))
    return thoughts


def _compare_best(case: Case, scores: Float[Tensor, "text step word"]) -> None:
    """The likeliest words; which of two equals comes first is not decided (where nothing is said, all are equal)."""
    for key in [key for key in case.stored if re.fullmatch(r"top\d+", key)]:
        stored = torch.from_numpy(case.take(key))
        best = scores.topk(stored.shape[2], dim=2).values
        case.check(key, _gap(scores.gather(2, stored), best), SCORE)


def compare_norms(
    case: Case,
    key: str,
    names: list[str],
    model: ShowAttendTell,
    places: Mapping[str, Place],
    ids: OfficialIds,
) -> None:
    """The length of every gradient, relative to itself; a weight that has no place here must have none."""
    found = dict(official_gradients(model, places, ids))
    for name, expected in zip(names, case.take(key).tolist(), strict=True):
        gradient = found[name]
        ours = 0.0 if gradient is None else float(gradient.norm())
        case.check(f"{key}__{name}", abs(ours - expected), GRADIENT * expected if expected > 1e-3 else 1e-6)


def _verify_beams(case: Case, model: ShowAttendTell, ids: OfficialIds) -> None:
    """Beam searches of any width: the best caption and its looks, and all that came to an end, in that order."""
    images = _regions(case)
    for prefix in [key.removesuffix("_best") for key in case.stored if re.fullmatch(r"beam\d+_best", key)]:
        width = int(prefix.removeprefix("beam"))
        config = DecodingConfig(
            beam=width, longest=LONGEST, unknown=True, finished="shrink", unfinished="fallback", length_penalty="none"
        )
        decoded = beam_search(model, images, config)
        best, looked = case.stored[f"{prefix}_best"], case.stored[f"{prefix}_alphas"]
        case.compare(f"{prefix}_best", _sentences(decoded.best(), ids, best.shape[1]), 0.0)
        case.compare(f"{prefix}_alphas", _looks(decoded.best(), looked.shape), SCORE)
        complete = decoded.by_completion()
        ended = complete.ended & ~complete.score.isneginf()
        sentences = _sentences(complete, ids, case.stored[f"{prefix}_complete_seqs"].shape[2])
        sentences = sentences.masked_fill(~ended[:, None], -1).view(len(images), width, -1)
        case.compare(f"{prefix}_complete_seqs", sentences, 0.0)
        case.compare(f"{prefix}_num_complete", ended.view(-1, width).sum(dim=1), 0.0)
        scores = complete.score.masked_fill(~ended, float("nan")).view(-1, width).numpy()
        stored = case.take(f"{prefix}_complete_scores")
        alike = stored.shape == scores.shape and np.array_equal(np.isnan(stored), np.isnan(scores))
        gap = float(np.nanmax(np.abs(stored - scores), initial=0)) if alike else float("inf")
        case.check(f"{prefix}_complete_scores", gap, SCORE)


def _sentences(decoded: Decoded, ids: OfficialIds, width: int) -> Int[Tensor, "row step"]:
    """Official ids, <start> first, −1 behind the end."""
    words = ids.back(decoded.words).masked_fill(~decoded.mask, -1)
    start = ids.back(torch.full_like(words[:, :1], START))
    whole = torch.cat([start, words], dim=1)[:, :width]
    return torch.nn.functional.pad(whole, (0, width - whole.shape[1]), value=-1)


def _looks(decoded: Decoded, shape: tuple[int, ...]) -> Float[Tensor, "row step height width"]:
    """A map of ones for <start>, then where each word looked; 0 behind the end."""
    looks = torch.cat([torch.ones_like(decoded.weights[:, :1]), decoded.weights], dim=1)[:, : shape[1]]
    looks = torch.nn.functional.pad(looks, (0, 0, 0, shape[1] - looks.shape[1]))
    return looks.reshape(*looks.shape[:2], *shape[2:])
