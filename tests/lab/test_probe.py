"""The probe, asked of matchers whose answers are known."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from photo_samples import make_photo, write, write_rows
from torch import Tensor, nn

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.data import DataConfig
from saccade.data.datasets.photos.entailment import EntailmentPair
from saccade.data.datasets.photos.entities import EntityPhrase, EntityPicture, EntitySentence
from saccade.lab.probe import (
    ask,
    importance,
    keep_regions,
    measure_binding,
    measure_entailment,
    measure_pointing,
    measure_reasons,
)
from saccade.language import Vocabulary
from saccade.language.foils import Foil
from saccade.models import Fusion, Matcher, entries, entry
from toy_runs import DIM, SIZES, saccade_command, transformer_sizes

CAPTIONS = [f"a {one} dog chases a {other} cat" for one in ("black", "brown", "tan") for other in ("white", "gray")]
VOCABULARY = Vocabulary.build([*CAPTIONS, "a camel sits in the snow"], 1)
Score = Callable[[int, tuple[int, ...]], float]


class Stub(Matcher):
    """Region r of a picture is the number of the picture and a mark; `score` judges a picture's number and a text."""

    def __init__(self, score: Score) -> None:
        super().__init__(None, VOCABULARY)
        self.judge = score
        self.weight = nn.Parameter(torch.zeros(1))

    def encode_images(self, images: RegionBatch) -> ImageCode:
        return ImageCode(images.features, images.mask)

    def encode_texts(self, texts: TextBatch) -> TextCode:
        return TextCode(texts.tokens[:, :, None].float(), texts.mask)

    def similarity(self, images: ImageCode, texts: TextCode) -> Tensor:
        raise AssertionError("only the pairs that are asked for are scored")

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """The score of the pair, times the share of marked regions among those that are there; words look at marks."""
        words = [tuple(row[mask, 0].long().tolist()) for row, mask in zip(texts.words, texts.mask, strict=True)]
        marks = images.regions[:, :, 1] * images.mask
        scores = [self.judge(int(number), text) for number, text in zip(images.regions[:, 0, 0], words, strict=True)]
        weights = (marks + 0.01)[:, None, :].expand(-1, texts.mask.shape[1], -1)
        return Alignment(weights, torch.tensor(scores) * marks.sum(dim=1), texts.mask, images.mask)


def pictures(count: int, regions: int = 10) -> RegionBatch:
    """Region r of each is a cell of a row from left to right; picture p has its mark, which is 1, on region p."""
    features = torch.zeros(count, regions, 2)
    features[:, :, 0] = torch.arange(count)[:, None]
    features[torch.arange(count), torch.arange(count) % regions, 1] = 1
    left = torch.arange(regions) / regions
    boxes = torch.stack([left, torch.zeros(regions), left + 1 / regions, torch.ones(regions)], dim=1)
    return RegionBatch(features, torch.ones(count, regions, dtype=torch.bool), boxes.expand(count, -1, -1))


def tokens(text: str) -> tuple[int, ...]:
    return tuple(VOCABULARY.batch([text]).tokens[0].tolist())


TRUE = [tokens(caption) for caption in CAPTIONS]


def knows(picture: int, text: tuple[int, ...]) -> float:
    return float(text == TRUE[picture])


def bag(picture: int, text: tuple[int, ...]) -> float:
    return float(len(set(text) & set(TRUE[picture])) - len(set(text) - set(TRUE[picture])))


def guesses(picture: int, text: tuple[int, ...]) -> float:
    return float(zlib.crc32(f"{picture} {text}".encode()) % 1009)


def foils() -> list[tuple[int, Foil]]:
    found = []
    for place, caption in enumerate(CAPTIONS):
        _, one, dog, verb, _, other, cat = caption.split()
        found += [
            (place, Foil("nouns", caption, f"a {one} {cat} {verb} a {other} {dog}")),
            (place, Foil("adjectives", caption, f"a {other} {dog} {verb} a {one} {cat}")),
            (place, Foil("sides", caption, f"a {other} {cat} {verb} a {one} {dog}")),
            (place, Foil("replaced", caption, caption.replace(dog, "camel"))),
        ]
    return found


@pytest.mark.parametrize(("score", "swapped", "replaced"), [(knows, 100, 100), (bag, 50, 100)])
def test_who_knows_the_caption_has_100_and_a_bag_of_words_50(score: Score, swapped: float, replaced: float) -> None:
    model = Stub(score)
    found = measure_binding(model, model.encode_images(pictures(len(CAPTIONS))), foils())
    assert {kind: rates.own.value for kind, rates in found.items()} == {
        "nouns": swapped,
        "adjectives": swapped,
        "sides": swapped,
        "replaced": replaced,
    }
    for rate in (rates.own for rates in found.values()):
        assert rate.count == len(CAPTIONS)
        assert rate.interval == (rate.value, rate.value)


def test_without_its_photo_the_caption_has_no_advantage_but_its_words() -> None:
    def fluent(picture: int, text: tuple[int, ...]) -> float:
        return float(text in TRUE)  # what is said of any photo

    for score, value in ((knows, 50), (fluent, 100)):
        model = Stub(score)
        found = measure_binding(model, model.encode_images(pictures(len(CAPTIONS))), foils())
        assert {rates.own.value for rates in found.values()} == {100}
        assert {rates.blind.value for rates in found.values()} == {value}


def test_who_guesses_has_about_50() -> None:
    model = Stub(guesses)
    many = [
        (place, Foil("nouns", f"{f.true} {'a ' * n}", f"{f.text} {'a ' * n}"))
        for n in range(20)
        for place, f in foils()
    ]
    rate = measure_binding(model, model.encode_images(pictures(len(CAPTIONS))), many)["nouns"].own
    assert 40 < rate.value < 60
    assert rate.interval[0] < rate.value < rate.interval[1]


def picture(place: int, left: float, right: float, kind: str) -> tuple[int, EntityPicture]:
    sentence = EntitySentence("A black dog .", (EntityPhrase(0, ("A", "black", "dog"), "1", (kind,)),))
    boxes = {"1": np.array([[left, 0, right, 1]], dtype=np.float32)}
    return place, EntityPicture(f"{place}.jpg", 10, 10, (sentence,), boxes)


def test_words_point_where_the_mark_is() -> None:
    model, regions = Stub(knows), pictures(3).pad(2)
    asked = [picture(0, 0, 0.2, "animals"), picture(1, 0.4, 0.6, "animals"), picture(2, 0.2, 0.3, "people")]
    found = measure_pointing(model, model.encode_images(regions), regions, asked)
    assert list(found) == ["all", "animals", "people"]
    assert [found[kind].model for kind in found] == pytest.approx([200 / 3, 50, 100])
    assert [found[kind].attention for kind in found] == pytest.approx([200 / 3, 50, 100])
    assert found["animals"].middle == 50
    assert found["animals"].random == pytest.approx(20)
    assert found["all"].count == 3


def test_a_reason_is_missed_when_it_is_taken_away() -> None:
    found = measure_reasons(Stub(knows), pictures(len(CAPTIONS)), CAPTIONS)
    assert found is not None
    deletion, insertion, random = found.areas()
    assert (deletion, insertion) == pytest.approx((0, 1))
    assert 0.2 < random < 0.8
    assert len(found.random) == 9


def test_who_has_learned_nothing_has_no_reasons() -> None:
    assert measure_reasons(Stub(lambda picture, text: 1.0), pictures(len(CAPTIONS)), CAPTIONS) is None


def test_regions_that_are_kept_stand_as_they_stood() -> None:
    regions = pictures(2)
    kept = keep_regions(regions, torch.arange(10).expand(2, -1).float() * torch.tensor([[1.0], [-1.0]]), 0.3)
    assert kept.boxes[0].tolist() == regions.boxes[0, 7:].tolist()
    assert kept.boxes[1].tolist() == regions.boxes[1, :3].tolist()
    assert kept.mask.all()
    ragged = keep_regions(regions.pad(4), torch.zeros(2, 14), 0.05)
    assert ragged.mask.tolist() == [[True], [True]]


def test_every_word_has_one_to_give() -> None:
    weights = torch.tensor([[[3.0, 1.0, 5.0], [1.0, -2.0, 5.0], [9.0, 9.0, 9.0]]])
    seen = Alignment(weights, torch.zeros(1), torch.tensor([[True, True, False]]), torch.tensor([[True, True, False]]))
    assert importance(seen).tolist() == [[1.75, 0.25, 0]]


def test_entailment_is_the_share_of_pairs_in_the_right_order() -> None:
    model = Stub(knows)
    pairs = [(n, EntailmentPair("", "dev", caption, "entailment")) for n, caption in enumerate(CAPTIONS)]
    wrong = [(n, EntailmentPair("", "dev", "a camel", "contradiction")) for n in range(len(CAPTIONS))]
    images = model.encode_images(pictures(len(CAPTIONS)))
    assert measure_entailment(model, images, [*pairs, *wrong]).value == 100
    assert measure_entailment(model, images, [*wrong, (0, EntailmentPair("", "dev", "snow", "entailment"))]).value == 50


@pytest.mark.parametrize("name", [entry.name for entry in entries() if issubclass(entry.model, Matcher)])
@torch.no_grad()
def test_every_matcher_can_be_asked(name: str) -> None:
    torch.manual_seed(1)
    kind = entry(name).model
    settings = {**SIZES, "parts": ("matching",)}
    sizes = {k: v for k, v in settings.items() if k in {field.name for field in fields(kind.Config)}}
    if issubclass(kind, Fusion):
        sizes |= transformer_sizes(kind.Config)
    model = kind(replace(kind.Config(), **sizes), VOCABULARY).eval()
    assert isinstance(model, Matcher)
    plain = pictures(len(CAPTIONS), 5)
    regions = replace(plain, features=torch.randn(len(CAPTIONS), 5, DIM)).pad(2)
    regions.mask[0, 3:] = False  # pictures need not have as many regions as others
    images = model.encode_images(regions)
    for rates in measure_binding(model, images, foils()).values():
        assert 0 <= rates.own.value <= 100
    assert measure_pointing(model, images, regions, [picture(n, 0, 0.5, "animals") for n in range(3)])["all"].count == 3
    reasons = measure_reasons(model, regions, CAPTIONS)
    assert reasons is None or np.isfinite(reasons.areas()).all()


@pytest.fixture(scope="module")
def flickr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photo to learn kinds of nouns from, and two to ask about."""
    root = tmp_path_factory.mktemp("flickr8k")
    splits = {"a.jpg": "train", "b.jpg": "dev", "c.jpg": "dev"}
    for name in splits:
        make_photo(root / "images" / name)
    write_rows(
        root / "images.tsv.gz",
        ("image", "split", "orig_width", "orig_height"),
        *((n, s, 40, 30) for n, s in splits.items()),
    )
    write_rows(
        root / "captions.tsv.gz",
        ("image", "n", "caption"),
        *(
            (name, n, f"A {colour} dog chases a {other} cat .")
            for name, other in zip(splits, ("white", "gray", "white"), strict=True)
            for n, colour in enumerate(("black", "brown"))
        ),
    )
    text = "A dog chases a cat ."
    phrases = [{"first_word": n, "n_words": 2, "phrase": "", "chain": "1", "types": ["animals"]} for n in (0, 3)]
    said = {"width": 40, "height": 30, "boxes": {"1": [[1, 1, 40, 30]]}, "scene": [], "nobox": []}
    said["sentences"] = [{"text": text, "phrases": phrases}] * 3
    lines = [{"image": name, "split": split, **said} for name, split in splits.items()]
    write(root / "entities.jsonl.gz", "".join(json.dumps(line) + "\n" for line in lines))
    labels = ("entailment", "contradiction", "neutral")
    judged = [
        {"image": "b.jpg", "split": "dev", "hypothesis": f"A dog {n}.", "label": label}
        for n, label in enumerate(labels)
    ]
    write(root / "entailment.jsonl.gz", "".join(json.dumps(line) + "\n" for line in judged))
    return root


def test_questions_are_those_of_the_split(flickr: Path) -> None:
    questions = ask(DataConfig("flickr8k", flickr), "dev", photos=1)
    assert {foil.kind for _, foil in questions.foils} == {"nouns", "adjectives", "sides", "replaced"} - {"replaced"}
    assert [place for place, _ in questions.phrased] == [0]
    assert [(place, pair.label) for place, pair in questions.entailment] == [(0, "entailment"), (0, "contradiction")]
    assert questions.captions == ("A black dog chases a gray cat .", "A black dog chases a white cat .")


def test_other_data_are_refused(flickr: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert saccade_command("probe", "scan-flickr8k") == 2
    assert "data=world has no photos with phrases and boxes" in capsys.readouterr().err
    assert saccade_command("probe", "data=flickr8k", f"root={flickr}") == 2
    assert "name at least one matcher" in capsys.readouterr().err


def test_the_verb_prints_a_table_and_writes_a_page(
    flickr: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    words = "scan-flickr8k", "data=flickr8k", f"root={flickr}", "--device", "cpu", "-o", tmp_path / "pages"
    assert saccade_command("probe", *words) == 0
    assert "flickr8k/dev: 2 photos, 12 foils" in capsys.readouterr().out
    page, values = ((tmp_path / "pages" / f"binding.{end}").read_text() for end in ("md", "json"))
    for heading in ("Binding", "Pointing", "Reasons", "Entailment"):
        assert f"\n## {heading}\n" in page
    figures = json.loads(values)
    assert figures["foils"]["nouns"] == 4
    assert figures["models"][0]["pointing"]["all"]["middle"] == 100
    assert figures["command"].startswith("saccade probe scan-flickr8k data=flickr8k root=data/flickr8k")
