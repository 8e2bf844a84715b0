"""VSRN against what the official code computed: regions, vectors, both measures, captions, losses, gradient norms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.interop.matching.cases import Inputs, compare_gradient_norms, compare_metrics, open_cases, take_inputs
from saccade.interop.matching.vsrn import MEASURES, import_vsrn, our_parameter, read_captions
from saccade.interop.options import Options
from saccade.interop.verification import EMBEDDING, LOSS, SIMILARITY, Case, verifier
from saccade.language import Vocabulary
from saccade.models import Vsrn
from saccade.models.vsrn import normalise
from saccade.nn import Measure, Negatives, caption_labels, caption_loss, triplet_loss, whole_similarity

NEGATIVES: dict[str, Negatives] = {"sum": "all", "max": "hardest"}


@verifier("vsrn")
def verify_vsrn(folder: Path) -> Iterator[Case]:
    for case, model, options in open_cases(folder, _load):
        given = take_inputs(case)
        images, texts = _verify_codes(case, model, given)
        _verify_tables(case, model, images, texts)
        _verify_batch(case, model, given, options)
        _verify_captions(case, model, given, options)
        yield case


def _load(path: Path, vocabulary: Vocabulary | None) -> Vsrn:
    """The caption generator lies beside the checkpoints, which do not hold it."""
    name = path.name.removesuffix(".pth.tar").removesuffix(".legacy")
    captions = path.with_name(f"{name}.caption_model.pt")
    return import_vsrn(path, vocabulary, read_captions(captions) if captions.exists() else None)


@torch.no_grad()
def _verify_codes(case: Case, model: Vsrn, given: Inputs) -> tuple[ImageCode, TextCode]:
    images, texts = model.encode_images(given.images), model.encode_texts(given.texts)
    batch, said = model.encode_images(given.batch_images), model.encode_texts(given.batch_texts)
    assert images.pooled is not None
    assert texts.pooled is not None
    assert batch.pooled is not None
    assert said.pooled is not None
    stored = {
        "region_fc_emb": normalise(model.regions(given.images), model.config.norm_before),
        "region_gcn_emb": images.regions,
        "img_emb": images.pooled,
        "cap_emb": texts.pooled,
        "batch_gcn_emb": batch.regions,
        "batch_img_emb": batch.pooled,
        "batch_cap_emb": said.pooled,
    }
    case.compare_stored(stored, EMBEDDING)
    return images, texts


@torch.no_grad()
def _verify_tables(case: Case, model: Vsrn, images: ImageCode, texts: TextCode) -> None:
    """All pairs by both measures; `sims64` and the recalls are those of the model's own, as the evaluation takes it.

    The official evaluation of an order model can be asked for either: the stored table tells which it was.
    """
    double = images.to(dtype=torch.float64), texts.to(dtype=torch.float64)
    for measure in MEASURES.values():
        case.compare_stored({f"sims_{measure}32": whole_similarity(images, texts, measure)}, SIMILARITY)
    table = whole_similarity(*double, model.config.measure)
    if model.config.measure == "order" and "sims64" in case.stored:
        inner = whole_similarity(*double, "cosine")
        stored = torch.from_numpy(case.stored["sims64"])
        if stored.shape == table.shape:
            table = min(table, inner, key=lambda found: float((found - stored).abs().max()))
    case.compare_stored({"sims64": table}, SIMILARITY)
    compare_metrics(case, table.numpy())


def _verify_batch(case: Case, model: Vsrn, given: Inputs, options: Options) -> None:
    """The ranking losses of the training batch, and those of the whole lesson with their gradients."""
    margin = float(options.get("margin", 0.2))

    def scores(measure: Measure) -> Tensor:
        return whole_similarity(model.encode_images(given.batch_images), model.encode_texts(given.batch_texts), measure)

    with torch.no_grad():
        case.compare_stored({"batch_scores": scores(model.config.measure)}, SIMILARITY)
        for name, negatives in NEGATIVES.items():
            for measure in MEASURES.values():
                loss = triplet_loss(scores(measure), margin, negatives)
                case.compare_stored({f"loss_{name}__{measure}": loss}, LOSS)
    own = "max" if options.get("max_violation", False) else "sum"
    for name, negatives in NEGATIVES.items():
        whole = triplet_loss(scores(model.config.measure), margin, negatives) + _written(model, given)
        if model.caption is None:
            reason = "the caption generator is not in the checkpoint: expected NAME.caption_model.pt beside it"
            prefixes = (f"gradloss_total_{name}", f"gradnorm_total_{name}", *(["loss_total"] if name == own else []))
            for key in [key for key in case.stored if key.startswith(prefixes)]:
                case.excuse(key, reason)
            continue
        if name == own:
            case.compare_stored({"loss_total": whole}, LOSS)
        compare_gradient_norms(case, f"total_{name}", whole, model, our_parameter)


def _written(model: Vsrn, given: Inputs) -> Tensor:
    """The loss of writing each caption of the batch from its own picture."""
    pairs = torch.arange(len(given.batch_texts))
    own = model.own_losses(model.encode_images(given.batch_images), given.batch_texts, pairs)
    return torch.stack([*own.values(), torch.zeros(())]).sum()


@torch.no_grad()
def _verify_captions(case: Case, model: Vsrn, given: Inputs, options: Options) -> None:
    """Labels, the reader's states, what the writer expects at every step, and the loss."""
    longest = int(options.get("max_len", 60))
    labels, wanted = caption_labels(given.batch_texts, longest)
    case.compare_stored({"caption_labels": labels, "caption_masks": wanted}, 0.0)
    outputs = [key for key in case.stored if key.startswith(("caption_encoder", "caption_logprobs", "loss_caption"))]
    if model.caption is None:
        for key in outputs:
            case.excuse(key, "the caption generator is not in the checkpoint: expected NAME.caption_model.pt beside it")
        return
    images = model.encode_images(given.batch_images)
    states, last = model.caption.read(images.regions, images.mask)
    directions = 2 if model.config.caption_bidirectional else 1
    spoken = model.caption(states, last, images.mask, labels[:, : longest - 1])
    stored = {
        "caption_encoder_out": states,
        "caption_encoder_hidden": last.view(len(last), directions, -1).transpose(0, 1),
        "caption_logprobs": spoken,
    }
    case.compare_stored(stored, EMBEDDING)
    case.compare_stored({"loss_caption": caption_loss(spoken, labels, wanted)}, LOSS)
    if "loss_caption" in case.stored:
        difference = float(_written(model, given)) - float(case.stored["loss_caption"])
        case.check("loss_caption in the steps a batch needs", abs(difference), LOSS)
