"""How good captioners are: a caption of every picture of a split, beside what people said; and when they attend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from saccade.core.config import to_dict
from saccade.core.files import check_writable, write_json
from saccade.core.progress import Tell, progress_bar
from saccade.data import CaptionedImages
from saccade.decoding import DecodingConfig, decode
from saccade.features.concepts import with_graphs
from saccade.language import Parse, shared_parser, words_only
from saccade.language.caption_words import word_table
from saccade.metrics import CAPTION_METRICS, caption_scores, diversity
from saccade.metrics.captions.meteor import load_meteor_tables
from saccade.metrics.captions.report import caption_words
from saccade.models import Captioner, load_model
from saccade.tasks.captioning import EvalOptions, describe_decoding
from saccade.tasks.captioning.predict import coco_id
from saccade.tasks.evaluator import (
    PART,
    Arrays,
    EvalRequest,
    Evaluation,
    Evaluator,
    SplitForModels,
    mean_parts,
    results_files,
)
from saccade.tasks.pairs import cut

MEANS = ("rouge_l", "cider_d")  # BLEU and METEOR add up counts of the whole split: they are no means over pictures
SENTINEL = ("sentinel_function", "sentinel_nouns", "sentinel_contrast")
LANGUAGE = {
    "distinct_1": "different words / words",
    "distinct_2": "different pairs / pairs",
    "vocabulary": "words used",
    "captions": "different captions",
    "length": "words a caption",
    "self_bleu": "self-BLEU-4",
}
QUICK = ("bleu1", "bleu4", "rouge_l", "cider_d")  # of evaluations in training: METEOR and graphs take longer


@torch.no_grad()
def caption_all(
    model: Captioner,
    data: CaptionedImages,
    decoding: DecodingConfig | None = None,
    batch_size: int = 256,
    tell: Tell = lambda done, total: None,
) -> list[str]:
    """The best caption of every picture of a split, in order."""
    data = as_read_by(model, data)
    device = next(model.parameters()).device
    was_training, said = model.training, []
    model.eval()
    try:
        for first in range(0, len(data.images), batch_size):
            part = range(first, min(first + batch_size, len(data.images)))
            found = decode(model, data.images.batch(list(part)).to(device), decoding, keep=1).best()
            said += [model.sentence(row) for row in found.words.tolist()]
            tell(part.stop, len(data.images))
        return said
    finally:
        model.train(was_training)


def as_read_by(model: Captioner, data: CaptionedImages) -> CaptionedImages:
    """The split, with scene graphs of what its extractor names if the model reads them."""
    return with_graphs(data, model.vocabulary) if model.reads_graphs else data


def references_of(data: CaptionedImages) -> list[list[str]]:
    """What people said of every picture."""
    return [[data.texts[text] for text in owned] for owned in data.texts_of_image]


def caption_figures(
    model: Captioner,
    data: CaptionedImages,
    decoding: DecodingConfig | None = None,
    batch_size: int = 256,
    metrics: Sequence[str] = QUICK,
) -> dict[str, float]:
    """Caption metrics of a split, as in papers: times 100."""
    said = caption_all(model, data, decoding, batch_size)
    scores = caption_scores(said, references_of(data), only=metrics)
    return {name: 100 * scores[name].corpus for name in CAPTION_METRICS if name in scores}


class CaptionScores(Evaluator[Captioner, CaptionedImages]):
    """Figures as in papers, times 100; METEOR knows words and stems, which needs no other tables."""

    metrics: ClassVar = {
        **{key: name for key, name in CAPTION_METRICS.items() if key not in ("cider", "scene_graph_f")},
        "sentinel_function": "β on function words",
        "sentinel_nouns": "β on nouns",
        "sentinel_contrast": "β on function words − on nouns",
    }
    metric = "cider_d"
    columns = ("bleu1", "bleu4", "meteor", "rouge_l", "cider_d")
    unit = "All figures times 100"

    def evaluate(self, model: Captioner, data: CaptionedImages, settings: Any) -> dict[str, float]:
        return caption_figures(model, data, settings.decoding, settings.eval_batch)

    def compare(self, request: EvalRequest) -> Evaluation:
        """All metrics of each model: a row for each, since there are more than a terminal is wide.

        Captions are found as in the run's own evaluations, or greedily, unless the options say otherwise.
        """
        options: EvalOptions = request.options
        ways = {folder: options.over(own_decoding(request.settings.get(folder))) for folder in request.models}
        splits = SplitForModels(request.data, request.split)
        tables = load_meteor_tables()
        kept = results_files(options.captions, request.models)
        check_writable(*kept.values())
        results: dict[str, dict[str, Any]] = {}
        for folder, way in ways.items():
            model = load_model(folder, Captioner).to(request.device)
            data: CaptionedImages = splits.regions_for(model, folder)
            with progress_bar(f"captioning ({folder})") as tell:
                said = caption_all(model, data, way, batch_size=64, tell=tell)
            with progress_bar("scoring") as tell:
                scores = caption_scores(said, references_of(data), None, tables, tell=tell)
            language = asdict(diversity([caption_words(text) for text in said]))
            results[folder] = {
                **{name: 100 * scores[name].corpus for name in CAPTION_METRICS},
                "language": {name: language[name] for name in LANGUAGE},
                "decoding": to_dict(way),
            }
            if folder in kept:
                rows = zip(data.images.ids, said, strict=True)
                write_json(kept[folder], [{"image_id": coco_id(id), "caption": text} for id, text in rows])
        facts = {"data": data.name, "split": data.split, "pictures": len(data.images), "meteor_stages": tables.stages}
        return Evaluation(
            f"{data.name}/{data.split}: {len(data.images):,} pictures, {len(data.texts):,} texts",
            ("", *(f"{folder}\n{describe_decoding(way)}" for folder, way in ways.items())),
            tuple(_rows(results)),
            {**facts, "results": results},
            (tables.describe(), *(f"the captions are in {file}" for file in kept.values())),
        )

    def shown(self, metric: str) -> tuple[str, ...]:
        return (*SENTINEL, "bleu4", "cider_d") if metric in SENTINEL else super().shown(metric)

    def measure(self, model: Captioner, data: CaptionedImages, settings: Any, folder: Path, tables: bool) -> Arrays:
        said = caption_all(model, data, settings.decoding, settings.eval_batch)
        results = [{"image_id": id, "caption": text} for id, text in zip(data.images.ids, said, strict=True)]
        write_json(folder / f"captions-{data.split}.json", results)  # as `saccade metrics score` reads them
        wanted = [name for name in self.metrics if name not in SENTINEL]
        scores = caption_scores(said, references_of(data), only=wanted)
        kept = {name: np.asarray(100 * scores[name].corpus) for name in wanted}
        kept |= {PART + name: mean_parts(scores[name].each) for name in MEANS}
        shares = sentinel_shares(model, data, settings.max_words)
        if shares is not None:
            parts = {
                name: mean_parts(each) for name, each in zip(SENTINEL, (*shares, shares[0] - shares[1]), strict=True)
            }
            kept |= {name: part.sum() for name, part in parts.items()}
            kept |= {PART + name: part for name, part in parts.items()}
        return kept | {"pictures": np.asarray(len(said)), "texts": np.asarray(len(data.texts))}


def own_decoding(settings: Any) -> DecodingConfig:
    """How a run's own evaluations found captions, by its settings; of a model that is no run, greedily."""
    return DecodingConfig(strategy="greedy") if settings is None else settings.decoding


def _rows(results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...] | None]:
    table: list[tuple[str, ...] | None] = [
        (label, *(f"{figures[name]:.1f}" for figures in results.values())) for name, label in CAPTION_METRICS.items()
    ]
    table.append(None)
    for name, label in LANGUAGE.items():
        found = [figures["language"][name] for figures in results.values()]
        table.append((label, *(f"{v:,}" if isinstance(v, int) else f"{v:.2f}" for v in found)))
    return table


FUNCTION_TAGS = frozenset({"DET", "AUX", "CCONJ", "SCONJ", "PRON", "PART"})
FUNCTION_WORDS = frozenset({"of"})  # other prepositions say where things stand, which a picture shows
PLACES = word_table(  # nouns, but none of a thing
    "left right side top bottom front back background foreground middle center centre distance way"
)


@torch.no_grad()
def sentinel_shares(
    model: Captioner, data: CaptionedImages, longest: int, batch_size: int = 64
) -> Float[np.ndarray, "2 image"] | None:
    """The mean β of each picture on function words and on nouns of things; None of a model without a sentinel.

    The captions are those that people wrote, so that models with other captions are measured on the same words. A
    picture whose captions have no such word has no value (nan).
    """
    device = next(model.parameters()).device
    sums, counts = np.zeros((2, len(data.images))), np.zeros((2, len(data.images)))
    for first in range(0, len(data.images), batch_size):
        images = range(first, min(first + batch_size, len(data.images)))
        places, _, owner = data.pairs(images, "pictures")
        if not places:
            continue
        texts = [words_only(data.texts[place]) for place in places]  # the parser's words are then the model's
        read = cut(model.read(texts), longest)
        state = model.start(model.extract(data.images.batch(list(images)).to(device))).select(owner.to(device))
        shares = model.teacher_force(state, read.tokens[:, :-1].to(device)).sentinel
        if shares is None:
            return None
        beta, words = shares.float().cpu().numpy(), (read.lengths - 2).tolist()  # without <start> and <end>
        for row, parse in enumerate(shared_parser().parse(texts)):
            image = first + int(owner[row])
            for group, chosen in enumerate((function_words(parse), things(parse))):
                within = [place for place in chosen if place < words[row]]
                sums[group, image] += beta[row, within].sum()
                counts[group, image] += len(within)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def function_words(parse: Parse) -> list[int]:
    """Where words stand that follow from those around them: the, is, and, of."""
    pairs = enumerate(zip(parse.tokens, parse.tags, strict=True))
    return [place for place, (word, tag) in pairs if tag in FUNCTION_TAGS or word in FUNCTION_WORDS]


def things(parse: Parse) -> list[int]:
    """Where the nouns stand that name something visible."""
    return [thing.place for thing in parse.objects if parse.tokens[thing.place] not in PLACES]
