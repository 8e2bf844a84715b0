"""Pre-training on captioned pictures: some word pieces and regions are hidden, some captions are exchanged, and the
model is to predict what was there (`models/base/fusion.py` has the losses, `nn/masking.py` what is hidden).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from saccade.batch import Batch, PairBatch, RegionBatch, TextBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages
from saccade.features.concepts import concepts_by_extractor, with_graphs
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import Fusion, load_model
from saccade.models.base.fusion import MATCHED, RegionTarget, contrast
from saccade.nn.masking import Hidden, content, hide_words, one_span, segments, tokens, with_overlapping
from saccade.nn.negatives import hard_texts, other_items
from saccade.nn.transformer.blocks import leaves_out_padding, places_of
from saccade.tasks.base import Loss, TaskSpec
from saccade.tasks.evaluator import EvalRequest, Evaluation, Evaluator, SplitForModels
from saccade.tasks.pairs import PairTask, about_each, open_captioned, prepare_captioned, vary_images
from saccade.tasks.predict import RegionPredictor
from saccade.tasks.prepare import Prepared, build_model
from saccade.tasks.pretraining import EvalOptions
from saccade.vision.augment import AugmentConfig
from saccade.vision.extractors import load_extractor

NAME_CONFIDENCE = 0.2  # of a region's name, by which it has a class


@dataclass(frozen=True)
class PretrainingConfig:
    """InterBERT's paper, which hides segments and overlapping regions."""

    hide_words: Hidden = "segments"  # tokens: each piece by itself; span: one for each caption, the released code's
    segment_rate: float = 0.1  # the chance of each piece to begin a hidden segment
    segment_length: float = 3.0  # pieces of a segment, on average
    token_rate: float = 0.15  # the chance of each piece, where they are hidden by themselves
    hide_regions: Literal["overlapping", "single"] = "overlapping"  # with an anchor, all that overlap it; or it alone
    region_rate: float = 0.15  # the chance of each region to be an anchor; 0.1 in the released code
    overlap: float = 0.4  # more than this share of intersection over union
    region_target: RegionTarget = "classes"  # of what the extractor names; features and contrast need no names
    wrong_rate: float = 0.5  # the chance of each caption to be exchanged for another
    hard_rate: float = 0.5  # … for the one of the batch most like it, rather than any
    word_weight: float = 1.0  # of each loss; 0: nothing is hidden, or exchanged, for it
    region_weight: float = 1.0
    match_weight: float = 1.0
    true_pairs_only: bool = False  # words are predicted in true pairs alone; regions always are
    items: Literal["pairs", "pictures"] = "pairs"  # what a batch counts: pairs, or pictures with all their captions
    min_count: int = 1  # of words, where the vocabulary is one of whole words
    vectors: str | None = None
    eval_batch: int = 64  # pairs that are judged at once

    def __post_init__(self) -> None:
        for name in ("segment_rate", "token_rate", "region_rate", "wrong_rate", "hard_rate", "overlap"):
            check_ranges(self, name, "between 0 and 1")
        check_ranges(self, "word_weight region_weight match_weight", "zero or more")
        check_ranges(self, "segment_length eval_batch min_count", "at least 1")
        if not self.word_weight + self.region_weight + self.match_weight:
            raise SaccadeError("one of word_weight, region_weight and match_weight must be more than zero")


@dataclass(frozen=True)
class MaskedPairs(Batch):
    """Pictures and captions with parts hidden, and what is to be predicted; picture p goes with caption p."""

    images: RegionBatch
    texts: TextBatch
    words: Int[Tensor, "item word"]  # what hidden pieces were, −1 elsewhere
    regions: Bool[Tensor, "item region"]  # which are hidden
    target: Float[Tensor, "item region out"] | None  # classes, where those are predicted
    matched: Bool[Tensor, " item"]


class PretrainingTask(PairTask):
    """Captions and their pictures; what is hidden is drawn anew at every step."""

    selection = "accuracy"
    config: PretrainingConfig

    def __init__(
        self,
        model: Fusion,
        train: CaptionedImages,
        dev: CaptionedImages,
        config: PretrainingConfig,
        augmentation: AugmentConfig | None = None,
    ) -> None:
        train, dev = (with_classes(data, model, config) for data in (train, dev))
        super().__init__(train, dev, model.read, config, augmentation)

    def before_loss(self, model: Fusion, batch: PairBatch, step: int) -> PairBatch:
        return batch

    def graph_batch(self, model: Fusion, batch: PairBatch, step: int) -> PairBatch | None:
        """Regions and words padded to a multiple of four."""
        if not isinstance(batch.images, RegionBatch):
            return None
        images = replace(batch.images, ids=()).pad(-batch.images.mask.shape[1] % 4)
        texts = replace(batch.texts, words=())
        return replace(batch, images=images, texts=texts.pad(-texts.mask.shape[1] % 4))

    def loss(self, model: Fusion, batch: PairBatch, step: int) -> Loss:
        pictures = model.extract(vary_images(model, batch.images, self.augmentation))
        results = score_objectives(model, mask_pairs(model, replace(batch, images=pictures), self.config), self.config)
        losses = {name: weight * results.losses[name] for name, weight in weights_of(self.config).items()}
        return torch.stack([*losses.values()]).sum(), {f"{name}_loss": results.losses[name] for name in losses}

    def evaluate(self, model: Fusion) -> dict[str, float]:
        return MaskedAccuracy().evaluate(model, self.dev, self.config)


def weights_of(config: PretrainingConfig) -> dict[str, float]:
    """The objectives that count."""
    every = {"word": config.word_weight, "region": config.region_weight, "match": config.match_weight}
    return {name: weight for name, weight in every.items() if weight}


def with_classes(data: CaptionedImages, model: Fusion, config: PretrainingConfig) -> CaptionedImages:
    """Regions with the classes that the model knows, if those are to be predicted."""
    if not config.region_weight or model.config.region_output != "classes" or not model.config.region_labels:
        return data
    return with_graphs(data, Vocabulary((*SPECIAL, *model.config.region_labels)))


def mask_pairs(model: Fusion, batch: PairBatch, config: PretrainingConfig) -> MaskedPairs:
    """Exchange captions, then hide pieces and regions."""
    images, owner, texts = batch.images, batch.owner, replace(batch.texts, words=())
    assert isinstance(images, RegionBatch)
    own = torch.arange(len(texts), device=owner.device)
    same = batch.image_index[owner][:, None] == batch.image_index[owner]
    if config.match_weight:
        draws = torch.rand(2, len(texts), device=owner.device)
        hard = hard_texts(texts, ~same, len(model.vocabulary))
        other = torch.where(draws[1] < config.hard_rate, hard, other_items(~same))
        own = torch.where(draws[0] < config.wrong_rate, other, own)
    matched = same[torch.arange(len(own), device=owner.device), own]
    texts = texts.map(lambda value: value[own])
    about, target = about_each(images, owner), None
    if images.graph is not None:
        classes = len(model.config.region_labels) + len(SPECIAL)
        count = about.mask.shape[1]
        named = functional.one_hot(images.graph.objects[owner][:, :count], classes)[..., len(SPECIAL) :]
        target = named.to(about.features)
    there = content(texts)
    if config.hide_words == "segments":
        hidden = segments(there, config.segment_rate, config.segment_length)
    else:
        hidden = tokens(there, config.token_rate) if config.hide_words == "tokens" else one_span(there)
    labels = torch.full_like(texts.tokens, -1)
    if config.word_weight:
        texts, labels = hide_words(texts, hidden, model.vocabulary)
    if config.true_pairs_only:
        labels = labels.masked_fill(~matched[:, None], -1)
    return MaskedPairs(about, texts, labels, hide_regions(about, config), target, matched)


def hide_regions(images: RegionBatch, config: PretrainingConfig) -> Bool[Tensor, "image region"]:
    if not config.region_weight:
        return torch.zeros_like(images.mask)
    anchors = images.mask & (torch.rand(images.mask.shape, device=images.mask.device) < config.region_rate)
    if config.hide_regions == "single":
        return anchors
    return with_overlapping(anchors, images.boxes, config.overlap) & images.mask


@dataclass(frozen=True)
class ObjectiveResults:
    """A loss for each objective, how many predictions are correct, and of how many."""

    losses: Mapping[str, Tensor]
    correct: Mapping[str, Tensor]
    count: Mapping[str, Tensor]


def score_objectives(model: Fusion, pairs: MaskedPairs, config: PretrainingConfig) -> ObjectiveResults:
    """Of masked regions, only those of true pairs count, and where classes are predicted, those that have one.

    A model that leaves padding out is asked for what counts alone; to tell regions apart takes all of them.
    """
    features = model.region_features(pairs.images)
    target = features.detach() if pairs.target is None else pairs.target
    masked = pairs.regions & pairs.matched[:, None]
    if pairs.target is not None:
        masked = masked & pairs.target.any(dim=-1)
    hidden, there = pairs.words, pairs.words >= 0
    wanted, word_places, region_places = weights_of(config), None, None
    if leaves_out_padding(model.config.packed, features.device):  # looked for before a GPU has much to do
        word_places = places_of(there).at
        region_places = places_of(masked).at if model.config.region_output != "contrast" else None
    images = model.embed_regions(features, pairs.images, pairs.regions)
    fused = model.fuse(images, model.encode_texts(pairs.texts))
    losses: dict[str, Tensor] = {}
    correct: dict[str, Tensor] = {}
    count: dict[str, Tensor] = {}
    if "word" in wanted:
        words, hidden, there = those_at(word_places, fused.words, hidden, there)
        logits = model.word_logits(words)
        losses["word"] = model.word_loss(logits, hidden)
        correct["word"], count["word"] = ((logits.argmax(dim=-1) == hidden) & there).sum(), there.sum()
    if "region" in wanted:
        regions, target, masked = those_at(region_places, fused.regions, target, masked)
        found = model.region_outputs(regions)
        losses["region"] = model.region_loss(found, masked, target)
        correct["region"], count["region"] = (correct_regions(model, found, target) * masked).sum(), masked.sum()
    if "match" in wanted:
        logits = model.match_logits(fused.pooled)
        losses["match"] = model.match_loss(logits, pairs.matched)
        correct["match"] = ((logits.argmax(dim=1) == MATCHED) == pairs.matched).sum()
        count["match"] = pairs.matched.new_ones(len(logits)).sum()
    return ObjectiveResults(losses, correct, count)


def those_at(places: Int[Tensor, " place"] | None, *values: Tensor) -> Sequence[Tensor]:
    """Of values [item place …] those at the places, as the places of one item; all if none are given."""
    return values if places is None else [value.flatten(0, 1).index_select(0, places)[None] for value in values]


def correct_regions(model: Fusion, found: Tensor, target: Tensor) -> Float[Tensor, "item region"]:
    """1 where the likeliest class is right, or the region is picked among others; of features their cosine."""
    if model.config.region_output == "classes":
        return (found.argmax(dim=-1) == target.argmax(dim=-1)).float()
    if model.config.region_output == "features":
        return functional.cosine_similarity(found, target, dim=-1)
    scores, own = contrast(found, target)
    return (scores.argmax(dim=-1) == own).float()


class MaskedAccuracy(Evaluator[Fusion, CaptionedImages]):
    """Per cent of hidden pieces, hidden regions and pairs that a model gets right; what is hidden is always the
    same."""

    metrics: ClassVar = {
        "accuracy": "mean over objectives",
        "word_accuracy": "hidden word pieces found",
        "region_accuracy": "hidden regions found",
        "match_accuracy": "pairs judged rightly",
    }
    metric = "accuracy"
    columns = ("word_accuracy", "region_accuracy", "match_accuracy", "accuracy")
    unit = "Per cent"

    @torch.no_grad()
    def evaluate(self, model: Fusion, data: CaptionedImages, settings: PretrainingConfig) -> dict[str, float]:
        device, was_training = next(model.parameters()).device, model.training
        data = with_classes(data, model, settings)
        texts, size = model.read(data.texts), settings.eval_batch
        correct: dict[str, float] = {}
        count: dict[str, float] = {}
        summed: dict[str, float] = {}
        model.eval()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(0)
            for first in range(0, len(data.texts), size):
                chosen = range(first, min(first + size, len(data.texts)))
                rows, images, owner = data.pairs(list(chosen), "pairs")
                pictures = data.images.batch(images.tolist())
                batch = PairBatch(pictures, texts.select(rows).trimmed(), owner, torch.as_tensor(images)).to(device)
                batch = replace(batch, images=model.extract(batch.images))
                results = score_objectives(model, mask_pairs(model, batch, settings), settings)
                for name, loss in results.losses.items():
                    summed[name] = summed.get(name, 0.0) + float(loss * results.count[name])
                    correct[name] = correct.get(name, 0.0) + float(results.correct[name])
                    count[name] = count.get(name, 0.0) + float(results.count[name])
        model.train(was_training)
        found = {f"{name}_accuracy": 100 * correct[name] / max(count[name], 1) for name in correct}
        losses = {f"{name}_loss": summed[name] / max(count[name], 1) for name in summed}
        return {"accuracy": float(np.mean([*found.values()])), **found, **losses}

    def counts(self, data: CaptionedImages, settings: Any) -> dict[str, int]:
        return {"pictures": len(data.images), "texts": len(data.texts)}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every figure, a column for every model."""
        splits = SplitForModels(request.data, request.split)
        found: dict[str, dict[str, float]] = {}
        for folder in request.models:
            model = load_model(folder, Fusion).to(request.device)
            data: CaptionedImages = splits.regions_for(model, folder)
            settings = request.settings.get(folder, PretrainingConfig(region_target=model.config.region_output))
            found[folder] = self.evaluate(model, data, settings)
        names = dict.fromkeys(name for figures in found.values() for name in figures)
        shown = {name: ".3f" if name.endswith("_loss") else ".1f" for name in names}
        return Evaluation(
            f"{data.name}/{data.split}: {len(data.texts)} captions, half of them exchanged; per cent, and losses",
            ("figure", *found),
            tuple((n, *(f"{own[n]:{shown[n]}}" if n in own else "" for own in found.values())) for n in names),
            {"data": data.name, "split": data.split, "results": found},
        )


def prepare_pretraining(train: CaptionedImages, settings: PretrainingConfig) -> Prepared:
    """The captions' words, and the classes of regions if these are to be predicted.

    Raises: SaccadeError if the extractor names none.
    """
    found = replace(
        prepare_captioned(train, settings),
        facts={"region_target": settings.region_target, "region_weight": settings.region_weight},
    )
    if not settings.region_weight or settings.region_target != "classes":
        return found
    if train.extractor is None or not load_extractor(train.extractor, "cpu").has_names:
        who = f"the extractor {train.extractor}" if train.extractor else f"what made the features of {train.name}"
        raise SaccadeError(
            f"{who} names nothing, so regions have no classes to predict: give region_target=features or contrast"
        )
    named = concepts_by_extractor(train, range(len(train.images)), confidence=NAME_CONFIDENCE)
    labels = tuple(sorted({(word.split() or [""])[-1] for own in named for word in own} - {""}))
    return replace(found, labels=labels, notes=(*found.notes, f"{len(labels)} classes of regions"))


def build_pretraining(kind: type[Fusion], config: Any, prepared: Prepared) -> Fusion:
    """A fresh model that predicts what the settings say of regions.

    Raises: SaccadeError if regions are to be predicted and it has no output for them.
    """
    if prepared.facts["region_weight"] and "regions" not in config.outputs:
        raise SaccadeError(
            f"{kind.name} has no output for masked regions: give region_weight=0, or outputs with regions"
        )
    target = prepared.facts["region_target"]
    return build_model(kind, replace(config, region_output=target, region_labels=prepared.labels), prepared)


class PretrainedPredictor(RegionPredictor[Fusion]):
    """A pre-trained model: it is there to be fine-tuned."""


SPEC: TaskSpec[Fusion, CaptionedImages] = TaskSpec(
    name="pretraining",
    noun="pre-trained model",
    does="is there to be fine-tuned",
    protocol=Fusion,
    config=PretrainingConfig,
    open=open_captioned,
    prepare=prepare_pretraining,
    task=PretrainingTask,
    evaluator=MaskedAccuracy(),
    predictor=PretrainedPredictor,
    verbs=("train", "curves"),
    options=EvalOptions,
    next_steps=(
        "saccade curves {run}",
        "saccade eval {run}{split}",
        "saccade train {system} task=matching {data} init={run}",
    ),
    build=build_pretraining,
)
