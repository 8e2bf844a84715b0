"""SCAN against what the official code computed: embeddings, 40 modes of similarity, losses, gradients, one step."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.batch import ImageCode, RegionBatch, TextBatch, TextCode
from saccade.errors import SaccadeError
from saccade.interop.checkpoint import read_checkpoint
from saccade.interop.scan import NORMALISERS, PARTS, POOLS, QUERIES, import_scan, our_parameter
from saccade.interop.verification import Case, load_arrays, verifier
from saccade.language import Vocabulary
from saccade.metrics import ranks, summary
from saccade.models import Scan
from saccade.nn import Attend, triplet_loss
from saccade.ops import AttentionForm

SHARPNESS = {"t2i": (9.0, 6.0), "i2t": (4.0, 5.0)}  # λ₁, λ₂ of the stored modes
EMBEDDING, SIMILARITY, SUMMED, LOSS, GRADIENT = 1e-5, 1e-5, 2e-5, 1e-4, 1e-3
TRAINED_MODE = ("t2i", "LogSumExp", "clipped_l2norm")  # whose gradients are stored
METRICS = ("r1", "r5", "r10", "medr", "meanr")


@verifier("scan")
def verify_scan(folder: Path) -> Iterator[Case]:
    vocabulary = Vocabulary.load(folder / "vocab.json") if (folder / "vocab.json").exists() else None
    for path in sorted(folder.glob("*.io.npz")):
        name = path.name.removesuffix(".io.npz")
        containers = [p for p in (folder / f"{name}.pth.tar", folder / f"{name}.legacy.pth.tar") if p.exists()]
        if not containers:
            raise SaccadeError(f"{path} has no checkpoint beside it: expected {name}.pth.tar")
        models = [import_scan(p, vocabulary) for p in containers]
        case = Case(name, load_arrays(path))
        if len(models) == 2:
            states = [m.state_dict() for m in models]
            case.check("both containers", max(float((states[0][k] - states[1][k]).abs().max()) for k in states[0]), 0.0)
        yield _verify_case(case, models[0], containers[0])


def _verify_case(case: Case, model: Scan, checkpoint: Path) -> Case:
    features = torch.from_numpy(case.take("images"))
    images = RegionBatch(
        features, torch.ones(features.shape[:2], dtype=torch.bool), torch.zeros(*features.shape[:2], 4)
    )
    tokens, lengths = torch.from_numpy(case.take("captions")), torch.from_numpy(case.take("lengths"))
    texts = TextBatch(tokens, torch.arange(tokens.shape[1]) < lengths[:, None])
    pairs = [torch.from_numpy(case.take(f"batch_{side}_idx")) for side in ("img", "cap")]
    batch_images, batch_texts = images.select(pairs[0]), texts.select(pairs[1])
    longest = int(batch_texts.lengths.max())
    batch_texts = TextBatch(batch_texts.tokens[:, :longest], batch_texts.mask[:, :longest])
    with torch.no_grad():
        image_code, text_code = model.encode_images(images), model.encode_texts(texts)
        batch_codes = model.encode_images(batch_images), model.encode_texts(batch_texts)
    stored = {
        "img_emb": image_code.regions,
        "cap_emb": text_code.words,
        "batch_img_emb": batch_codes[0].regions,
        "batch_cap_emb": batch_codes[1].words,
    }
    for key, value in stored.items():
        if key in case.stored:
            case.compare(key, value, EMBEDDING)
    if "cap_emb_len" in case.stored:
        case.compare("cap_emb_len", texts.lengths, 0.0)
    _verify_modes(case, image_code, text_code, batch_codes, _margin(checkpoint))
    _verify_metrics(case, model, image_code, text_code)
    for negatives in ("sum", "max"):
        if f"grad_{negatives}__loss" in case.stored:
            _verify_gradients(case, model, checkpoint, (batch_images, batch_texts), negatives)
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


def _verify_metrics(case: Case, model: Scan, images: ImageCode, texts: TextCode) -> None:
    """The official recalls, where a case stores them for the model's own mode."""
    if "metrics_i2t" not in case.stored and "sims" not in case.stored:
        return
    table = model.similarity(images.to(dtype=torch.float64), texts.to(dtype=torch.float64)).detach().numpy()
    if "sims" in case.stored:
        case.compare("sims", table, SIMILARITY)
    found = ranks(table, np.arange(table.shape[1]) // (table.shape[1] // table.shape[0]))
    for key, values in (("metrics_i2t", found.image_to_text), ("metrics_t2i", found.text_to_image)):
        if key in case.stored:
            case.compare(key, np.array([summary(values)[m] for m in METRICS]), 1e-6)


def _verify_gradients(
    case: Case, model: Scan, checkpoint: Path, batch: tuple[RegionBatch, TextBatch], negatives: str
) -> None:
    """The full gradient of the batch loss, its norms, and the parameters after one official training step."""
    options = _options(checkpoint)
    model = import_scan(checkpoint, model.vocabulary)
    loss = triplet_loss(
        _gradient_mode(case, negatives).similarity(model.encode_images(batch[0]), model.encode_texts(batch[1])),
        _margin(checkpoint),
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
    torch.nn.utils.clip_grad_norm_(parameters.values(), float(options["grad_clip"]))
    torch.optim.Adam(parameters.values(), lr=float(options["learning_rate"])).step()
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


def _options(checkpoint: Path) -> dict[str, Any]:
    options = read_checkpoint(checkpoint)["opt"]
    return options if isinstance(options, dict) else vars(options)


def _margin(checkpoint: Path) -> float:
    return float(_options(checkpoint).get("margin", 0.2))
