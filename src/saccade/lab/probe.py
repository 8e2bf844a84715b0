"""Does a matcher bind words, and are its reasons its reasons? Four questions to every matcher, about the same photos.

    binding      how often a true caption scores above a foil of it (`saccade.language.foils`); chance is 50. Beside it
                 the same with another photo: what a model doubts without the picture is no binding
    pointing     how often the last word of a phrase finds itself in the phrase's box, in the map that `explain` draws
    reasons      how the score falls when the regions that the words point at most are taken away first (deletion),
                 how it rises when they come first (insertion), beside regions in a random order
    entailment   how often a sentence that a photo entails scores above one that it contradicts (area under the ROC)

For reasons, regions are left out before the picture is encoded. The areas are means of the score over one to nine
tenths of the regions, on a scale where 0 is a caption of another photo and 1 the true caption with all regions. If what
a model shows as its reasons were no reason, all three orders would come to the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import Alignment, ImageCode, RegionBatch, TextCode, stack
from saccade.core.errors import SaccadeError
from saccade.core.progress import Tell
from saccade.data import CaptionedImages, DataConfig, open_records
from saccade.data.datasets.photos.entailment import FILE, EntailmentPair, read_entailment
from saccade.data.datasets.photos.entities import EntityPhrase, EntityPicture, grounded_phrases, read_entities
from saccade.data.records import CaptionedPhotos
from saccade.data.store.sources import first_images
from saccade.data.text_files import find_file
from saccade.lab.reports import markdown_table
from saccade.language.foils import FOIL_KINDS, Foil, FoilKind, NounKinds, make_foils
from saccade.metrics.pointing import inside, pointed_at, pointing_chance, points_at
from saccade.metrics.statistics import rate_interval, roc_auc
from saccade.models import Matcher, load_model
from saccade.tasks.evaluator import SplitForModels
from saccade.tasks.grounding.evaluate import token_span
from saccade.tasks.grounding.locate import read_phrases
from saccade.tasks.matching.evaluate import encode_all_texts
from saccade.tasks.matching.refined import pair_scores

REASONED_PHOTOS = 200  # one caption each
RANDOM_ORDERS = 3
TENTHS = range(1, 10)
BATCH_SIZE = 64  # pictures encoded together, and pairs aligned together
MIDDLE = np.array([0.5, 0.5])


@dataclass(frozen=True)
class Rate:
    """A share in per cent, of how many, and where it lies by a bootstrap over photos."""

    value: float
    count: int
    interval: tuple[float, float]

    @staticmethod
    def of(hits: Sequence[float], photos: Sequence[int]) -> Rate:
        low, high = rate_interval(np.asarray(hits, dtype=float), np.asarray(photos))
        return Rate(100 * float(np.mean(hits)), len(hits), (100 * low, 100 * high))


@dataclass(frozen=True)
class Binding:
    """How often the true caption wins: with its photo, and with another, where the sentence alone can tell."""

    own: Rate
    blind: Rate


@dataclass(frozen=True)
class Pointing:
    """In per cent: of the model, of its attention's strongest region, of one drawn at random, of the photo's middle."""

    count: int
    model: float
    attention: float
    random: float
    middle: float


@dataclass(frozen=True)
class Reasons:
    """The score with one to nine tenths of the regions: the least attended ones, the most attended, random ones."""

    deletion: tuple[float, ...]
    insertion: tuple[float, ...]
    random: tuple[float, ...]

    def areas(self) -> tuple[float, float, float]:
        """Under deletion, insertion and random order."""
        return float(np.mean(self.deletion)), float(np.mean(self.insertion)), float(np.mean(self.random))


@dataclass(frozen=True)
class ModelProbe:
    name: str
    binding: Mapping[FoilKind, Binding]
    pointing: Mapping[str, Pointing]  # by type of phrase, the most frequent first; "all"
    reasons: Reasons | None
    entailment: Rate | None  # None: no such sentences lie beside the photos


@dataclass(frozen=True, eq=False)
class Questions:
    """What every model is asked; pictures by their places in the split."""

    data: str
    split: str
    photos: int
    foils: tuple[tuple[int, Foil], ...]
    phrased: tuple[tuple[int, EntityPicture], ...]
    captions: tuple[str, ...]  # the first caption of each of the first photos
    entailment: tuple[tuple[int, EntailmentPair], ...]


def ask(config: DataConfig, split: str, photos: int, seed: int = 0) -> Questions:
    """The questions about a split; phrases of its first `photos` (0: of all).

    Raises: SaccadeError if the data are no photos with Flickr30k Entities.
    """
    data = open_records(config, split) if config.root is not None else None
    if not isinstance(data, CaptionedPhotos) or config.root is None:
        raise SaccadeError(
            f"data={config.name} has no photos with phrases and boxes: give those of Flickr30k Entities, for one "
            "data=flickr8k root=FOLDER"
        )
    data = data if config.limit is None else first_images(data, config.limit)
    train = (phrase for picture in read_entities(config.root, config.train_split) for phrase in _phrases(picture))
    kinds = NounKinds.of((phrase.words, phrase.types[0]) for phrase in train)
    captions: dict[int, list[str]] = defaultdict(list)
    for image, text in zip(data.image_of_text.tolist(), data.texts, strict=True):
        captions[image].append(text)
    foils = [
        (image, foil)
        for image, texts in captions.items()
        for made in make_foils(texts, kinds, seed=seed)
        for foil in made
    ]
    place = {id: n for n, id in enumerate(data.ids)}
    phrased = ((place[p.id], p) for p in read_entities(config.root, split) if p.id in place)
    file = find_file(config.root, FILE)
    judged = read_entailment(file) if file is not None else ()
    return Questions(
        data.name,
        split,
        len(data.ids),
        tuple(foils),
        tuple(sorted(phrased, key=lambda pair: pair[0])[: photos or None]),
        tuple(captions[image][0] for image in sorted(captions)[:REASONED_PHOTOS]),
        tuple((place[p.image], p) for p in judged if p.image in place and p.label != "neutral"),
    )


def _phrases(picture: EntityPicture) -> Iterator[EntityPhrase]:
    return (phrase for sentence in picture.sentences for phrase in sentence.phrases)


def probe_models(
    folders: Sequence[str], config: DataConfig, split: str, photos: int, device: str, tell: Tell | None = None
) -> tuple[Questions, list[ModelProbe]]:
    questions = ask(config, split, photos)
    splits = SplitForModels(config, split)
    found = []
    for n, folder in enumerate(folders):
        model = load_model(folder, Matcher).to(device).eval()
        found.append(probe(model, folder, splits.regions_for(model, folder, "matching"), questions))
        if tell:
            tell(n + 1, len(folders))
    return questions, found


@torch.no_grad()
def probe(model: Matcher, name: str, data: CaptionedImages, questions: Questions) -> ModelProbe:
    """All answers of a model; every picture is encoded once, and only those pairs are scored that are asked for."""
    pointed = max((place for place, _ in questions.phrased), default=-1) + 1
    images, regions = _encode(model, data, max(pointed, len(questions.captions)))
    return ModelProbe(
        name,
        measure_binding(model, images, questions.foils),
        measure_pointing(model, images, regions, questions.phrased),
        measure_reasons(model, regions.select(slice(len(questions.captions))), questions.captions),
        measure_entailment(model, images, questions.entailment) if questions.entailment else None,
    )


def _encode(model: Matcher, data: CaptionedImages, kept: int) -> tuple[ImageCode, RegionBatch]:
    """The codes of all pictures, and the regions of the first ones."""
    device = next(model.parameters()).device
    codes, regions = [], []
    for start in range(0, len(data.images), BATCH_SIZE):
        places = list(range(start, min(start + BATCH_SIZE, len(data.images))))
        found = model.extract(data.images.batch(places).to(device))
        codes.append(model.encode_images(found))
        if start < kept:
            regions.append(found)
    return stack(codes), stack(regions)


def _scores(
    model: Matcher, images: ImageCode, places: Sequence[int], texts: Sequence[str]
) -> Float[np.ndarray, " pair"]:
    """Picture `places[p]` with text p; a text that comes several times is encoded once."""
    number = {text: n for n, text in enumerate(dict.fromkeys(texts))}
    codes = encode_all_texts(model, list(number), BATCH_SIZE)
    device = images.regions.device
    text = torch.tensor([number[text] for text in texts], device=device)
    scores = pair_scores(model, images, codes, torch.tensor(places, device=device), text)
    return np.asarray(scores.double().cpu().numpy())


def measure_binding(model: Matcher, images: ImageCode, foils: Sequence[tuple[int, Foil]]) -> dict[FoilKind, Binding]:
    """How often the true caption scores higher than its foil, by kind; a tie counts half."""
    places = [place for place, _ in foils]
    others = [(place + 1) % len(images) for place in places]
    texts = [foil.true for _, foil in foils] + [foil.text for _, foil in foils]
    scores = _scores(model, images, [*places, *places, *others, *others], texts * 2).reshape(2, 2, len(foils))
    won = (scores[:, 0] > scores[:, 1]) + 0.5 * (scores[:, 0] == scores[:, 1])  # [own or other photo, foil]
    found: dict[FoilKind, Binding] = {}
    for kind in FOIL_KINDS:
        rows = [n for n, (_, foil) in enumerate(foils) if foil.kind == kind]
        if rows:
            photos = [places[n] for n in rows]
            found[kind] = Binding(*(Rate.of(each[rows].tolist(), photos) for each in won))
    return found


def measure_pointing(
    model: Matcher, images: ImageCode, regions: RegionBatch, pictures: Sequence[tuple[int, EntityPicture]]
) -> dict[str, Pointing]:
    """Where the last word of each phrase that has a box points, as in the grounding task."""
    said = [
        (place, s.text, grounded_phrases(s, picture.boxes)) for place, picture in pictures for s in picture.sentences
    ]
    said = [one for one in said if one[2]]
    boxes, real = regions.boxes.cpu().numpy(), regions.mask.cpu().numpy()
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for start in range(0, len(said), BATCH_SIZE):
        places, texts, phrases = zip(*said[start : start + BATCH_SIZE], strict=True)
        ends = [[token_span(text, phrase)[1] for phrase in own] for text, own in zip(texts, phrases, strict=True)]
        read, words = read_phrases(model, texts, [[(end - 1, end) for end in own] for own in ends])
        words = words.to(images.regions.device)
        pair = images.select(list(places)), model.encode_texts(read.to(images.regions.device))
        located, attended = (
            seen.float().cpu().numpy()
            for seen in (model.heat(*pair, words), words @ model.align(*pair).weights.float())
        )
        for n, (place, own) in enumerate(zip(places, phrases, strict=True)):
            here, regions_here = boxes[place][real[place]], np.flatnonzero(real[place])
            points = pointed_at(located[n][:, regions_here], here)
            for row, phrase in enumerate(own):
                chance = pointing_chance(here, phrase.boxes), inside(MIDDLE, phrase.boxes)
                strongest = points_at(attended[n][row, regions_here], here, phrase.boxes)
                for kind in ("all", phrase.kind):
                    found[kind].append((inside(points[row], phrase.boxes), strongest, *chance))
    counts = Counter({kind: len(hits) for kind, hits in found.items()})
    means = {kind: 100 * np.mean(found[kind], axis=0) for kind in counts}
    return {kind: Pointing(count, *map(float, means[kind])) for kind, count in counts.most_common()}


def measure_reasons(model: Matcher, regions: RegionBatch, captions: Sequence[str], seed: int = 0) -> Reasons | None:
    """Score picture p with caption p while some of its regions are left out.

    None where true captions score no higher than those of other photos: what has learned nothing has no reasons.
    """
    regions = replace(regions, graph=None)
    texts = encode_all_texts(model, captions, BATCH_SIZE)
    whole = _each(model, regions, texts)
    other = _each(model, regions, texts.select(np.roll(np.arange(len(captions)), 1)))
    zero = other.mean()
    unit = float(whole.mean() - zero)
    if unit <= 0:
        return None
    located = (
        model.locate(model.encode_images(regions.select(part)), texts.select(part)) for part in _parts(len(regions))
    )
    important = torch.cat([importance(alignment) for alignment in located])
    generator = torch.Generator().manual_seed(seed)
    random = [torch.rand(important.shape, generator=generator).to(important.device) for _ in range(RANDOM_ORDERS)]

    def curve(order: Float[Tensor, "image region"]) -> Float[np.ndarray, " tenth"]:
        kept = (_each(model, keep_regions(regions, order, tenth / 10), texts).mean() for tenth in TENTHS)
        return (np.array([float(score) for score in kept]) - float(zero)) / unit

    curves = curve(-important), curve(important), np.mean([curve(order) for order in random], axis=0)
    return Reasons(*(tuple(found.tolist()) for found in curves))


def importance(alignment: Alignment) -> Float[Tensor, "pair region"]:
    """The share of all words' attention that a region has; each word has one to give."""
    weights = alignment.weights.clamp(min=0) * alignment.region_mask[:, None]
    shares = weights / weights.sum(dim=2, keepdim=True).clamp(min=1e-12)
    return (shares * alignment.word_mask[:, :, None]).sum(dim=1)


def keep_regions(regions: RegionBatch, order: Float[Tensor, "image region"], share: float) -> RegionBatch:
    """The regions with the highest `order`, so many of each picture (at least one), as they stood."""
    counts = (regions.mask.sum(dim=1) * share).round().long().clamp(min=1)
    ranks = order.masked_fill(~regions.mask, float("-inf")).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    kept: Bool[Tensor, "image region"] = (ranks < counts[:, None]) & regions.mask
    places: Int[Tensor, "image kept"] = (~kept).long().argsort(dim=1, stable=True)[:, : int(counts.max())]
    mask = kept.gather(1, places)

    def pick(values: Tensor) -> Tensor:
        index = places[:, :, None].expand(-1, -1, values.shape[2])
        return values.gather(1, index) * mask[:, :, None]

    scores = None if regions.scores is None else regions.scores.gather(1, places) * mask
    return replace(regions, features=pick(regions.features), boxes=pick(regions.boxes), mask=mask, scores=scores)


def _parts(count: int) -> Iterator[slice]:
    return (slice(start, start + BATCH_SIZE) for start in range(0, count, BATCH_SIZE))


def _each(model: Matcher, regions: RegionBatch, texts: TextCode) -> Float[Tensor, " pair"]:
    scores = (
        model.align(model.encode_images(regions.select(part)), texts.select(part)).score
        for part in _parts(len(regions))
    )
    return torch.cat([score.double() for score in scores])


def measure_entailment(model: Matcher, images: ImageCode, pairs: Sequence[tuple[int, EntailmentPair]]) -> Rate:
    """The area under the ROC curve, times 100; the interval draws photos, with all their sentences."""
    places = np.array([place for place, _ in pairs])
    scores = _scores(model, images, places.tolist(), [pair.hypothesis for _, pair in pairs])
    entailed = np.array([pair.label == "entailment" for _, pair in pairs])
    value = roc_auc(scores[entailed], scores[~entailed])
    return Rate(100 * value, len(pairs), _auc_interval(scores, entailed, places))


def _auc_interval(
    scores: Float[np.ndarray, " pair"],
    entailed: Bool[np.ndarray, " pair"],
    places: Int[np.ndarray, " pair"],
    draws: int = 500,
) -> tuple[float, float]:
    dice = np.random.default_rng(0)
    rows = [np.flatnonzero(places == place) for place in np.unique(places)]
    areas = []
    for _ in range(draws):
        drawn = np.concatenate([rows[n] for n in dice.integers(0, len(rows), len(rows))])
        if 0 < entailed[drawn].sum() < len(drawn):
            areas.append(roc_auc(scores[drawn][entailed[drawn]], scores[drawn][~entailed[drawn]]))
    low, high = np.quantile(areas, [0.025, 0.975])
    return 100 * float(low), 100 * float(high)


# The page


FOILS_READ = """Two hundred of the foils of Flickr8k's dev captions, fifty of each kind drawn at random once the rules
were settled, were read by one reader beside all five captions of their photos, without the photos. False as far as the
captions tell, and grammatical, were 48 of `nouns`, 49 of `adjectives`, 50 of `sides` and 47 of `replaced`: 194. Of the
others, three may be true (people in the snow may be in the wilderness; of two men side by side, in red and in blue,
either may be named first), and three cut a name in two or lack an article. Since then a noun that is described twice is
left alone, and with it those two men. Exchanged nouns and sides give mostly odd sentences: no caption says that a ball
chases a dog, so that a model may doubt it without the picture."""

MEANINGS = {
    "Binding": """How often the true caption scores above a foil, in per cent, with 95 % of a bootstrap over photos. The
first three kinds exchange words (two nouns, two adjectives, the two sides of a relation), the last replaces one noun by
another of its kind. A bag of words has 50 in the first three. *Another photo*: the same captions and foils with the
next photo of the split instead of their own; what a model prefers even then, it prefers for the sentence's sake.""",
    "Pointing": """How often the last word of a phrase has the most weight at a region whose middle lies in a box of the
phrase (Flickr30k Entities), in per cent, by the type of what the phrase names. Weights are those that `saccade explain`
draws ([how words are shown](../explain.md#where-a-word-is-shown)); beside them the attention by which a model scores,
read at its strongest region alone. No model was ever given boxes of words: they learned from photos and captions.""",
    "Reasons": """The mean score when one to nine tenths of a picture's regions are left: *deletion* leaves those that
the words point at least, *insertion* those that they point at most, *random* any (three orders). 0 is a caption of
another photo, 1 the true caption with all regions. What the model shows are its reasons if deletion lies below random
and insertion above it. Regions are left out, not pixels: a cell of a grid has seen beyond its borders.""",
    "Entailment": """How often a sentence that the photo entails scores above one that it contradicts (area under the
ROC curve, times 100; e-SNLI-VE), with 95 % of a bootstrap over photos.""",
}


def probe_figures(questions: Questions, found: Sequence[ModelProbe], command: str) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    return {
        "command": command,
        "data": questions.data,
        "split": questions.split,
        "photos": questions.photos,
        "foils": {kind: sum(foil.kind == kind for _, foil in questions.foils) for kind in FOIL_KINDS},
        "models": [asdict(one) for one in found],
    }


def probe_page(questions: Questions, found: Sequence[ModelProbe], command: str) -> str:
    """Markdown: a table for each question."""
    kinds = list(found[0].binding)
    types = list(found[0].pointing)
    binding = [[one.name, *(show_rate(one.binding[kind].own) for kind in kinds)] for one in found]
    binding += [
        [f"{one.name}, another photo", *(show_rate(one.binding[kind].blind) for kind in kinds)] for one in found
    ]
    counts = ["foils", *(f"{found[0].binding[kind].own.count:,}" for kind in kinds)]
    pointing = [[one.name, *(f"{one.pointing[kind].model:.1f}" for kind in types)] for one in found]
    for name, figure in (("strongest region of its attention", "attention"), ("random region", "random")):
        pointing += [
            [f"{one.name}, {name}", *(f"{getattr(one.pointing[kind], figure):.1f}" for kind in types)] for one in found
        ]
    pointing += [
        ["middle of the photo", *(f"{found[0].pointing[kind].middle:.1f}" for kind in types)],
        ["phrases", *(f"{found[0].pointing[kind].count:,}" for kind in types)],
    ]
    reasons = [[one.name, *show_areas(one.reasons)] for one in found]
    tables = {
        "Binding": markdown_table(["model", *kinds], [*binding, ["chance", *["50.0"] * len(kinds)], counts]),
        "Pointing": markdown_table(["model", *types], pointing),
        "Reasons": markdown_table(["model", "deletion", "insertion", "random"], reasons),
    }
    extent = {
        "Pointing": f"{len(questions.phrased):,} photos.",
        "Reasons": f"{len(questions.captions):,} photos with one caption each.",
    }
    if found[0].entailment is not None:
        rows = [[one.name, show_rate(one.entailment)] for one in found]
        tables["Entailment"] = markdown_table(["model", "entailment"], [*rows, ["chance", "50.0"]])
        extent["Entailment"] = f"{len(questions.entailment):,} sentences about photos of this split."
    sections = [
        f"## {name}\n\n{MEANINGS[name]}{' ' + extent[name] if name in extent else ''}\n\n{table}"
        for name, table in tables.items()
    ]
    sections[0] += f"\n\n{FOILS_READ}"
    head = f"# Do they bind words, and are their reasons reasons? {questions.data}, {questions.split}"
    return "\n\n".join([head, f"{questions.photos:,} photos.", *sections, f"Made by `{command}`."]) + "\n"


def show_rate(rate: Rate | None) -> str:
    return "–" if rate is None else f"{rate.value:.1f} ({rate.interval[0]:.1f}–{rate.interval[1]:.1f})"


def show_areas(reasons: Reasons | None) -> list[str]:
    return ["–"] * 3 if reasons is None else [f"{area:.2f}" for area in reasons.areas()]
