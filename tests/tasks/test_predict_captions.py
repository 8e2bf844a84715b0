"""The Python API of captioners: captions of pictures with what was in the captioner's mind, and its explanation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import saccade
from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.decoding import DecodingConfig, decode
from saccade.explain import save_explanation
from saccade.language import Vocabulary
from saccade.models import Adaptive, AdaptiveConfig, Scan, ScanConfig, Sgae, SgaeConfig, UpDown, UpDownConfig
from saccade.tasks.captioning.predict import PictureCaptioner
from saccade.tasks.matching.task import PictureMatcher
from saccade.tasks.predict import load

HERE = (0.1, 0.1, 0.5, 0.5)


def noisy(model: torch.nn.Module) -> None:
    """Far from a fresh model's indifference, so that captions differ and end."""
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.7 * torch.randn_like(weight))


@pytest.fixture
def adaptive(vocabulary: Vocabulary, tmp_path: Path) -> PictureCaptioner:
    model = Adaptive(AdaptiveConfig(12, 8, 16, 6), vocabulary)
    noisy(model)
    model.save_pretrained(tmp_path / "run" / "best")
    return load(tmp_path / "run", kind=PictureCaptioner)


@pytest.fixture
def updown(vocabulary: Vocabulary, tmp_path: Path) -> PictureCaptioner:
    """One that looks at pictures with the world's extractor."""
    model = UpDown(UpDownConfig(256, 8, 16, 6), vocabulary, "world")
    noisy(model)
    model.save_pretrained(tmp_path / "updown")
    loaded = saccade.load(tmp_path / "updown")
    assert isinstance(loaded, PictureCaptioner)
    return loaded


@pytest.fixture
def pictures() -> list[np.ndarray]:
    return [np.random.default_rng(i).integers(0, 255, (64, 80, 3), np.uint8) for i in range(3)]


def test_captions_are_those_of_the_decoder_without_padding(adaptive: PictureCaptioner, toy_images: RegionBatch) -> None:
    config = DecodingConfig(num_beams=3, max_length=8)
    found = decode(adaptive.model, toy_images, config, keep=1)
    for i, said in enumerate(adaptive.caption(toy_images, config)):
        count = int(toy_images.mask[i].sum())
        assert said.text == adaptive.model.sentence(found.words[i].tolist()) == " ".join(said.words)
        assert said.weights.shape == (len(said.words), count)
        assert said.boxes.shape == (count, 4)
        assert said.sentinel is not None
        np.testing.assert_allclose(said.weights.sum(axis=1) + said.sentinel, 1, atol=1e-5)
        assert said.score == pytest.approx(said.log_probability) == pytest.approx(float(found.score[i]), abs=1e-5)
        end = float(found.log_probabilities[i, len(said.words)]) if bool(found.ended[i]) else 0.0
        assert np.log(said.probabilities).sum() + end == pytest.approx(said.log_probability, abs=1e-4)


@pytest.mark.parametrize("names", [True, False])
def test_a_model_of_scene_graphs_reads_what_the_extractor_names(
    names: bool, vocabulary: Vocabulary, pictures: list[np.ndarray]
) -> None:
    """From photos and from regions extracted before, as in training; unless it is to read no names."""
    model = Sgae(SgaeConfig(256, 7, 10, 6, entries=9, names=names), vocabulary, "world")
    captioner = PictureCaptioner(model.eval())
    regions = captioner.extract(pictures)
    assert (regions.graph is not None) == names
    assert [said.text for said in captioner.caption(pictures)] == [said.text for said in captioner.caption(regions)]
    if regions.graph is not None:
        assert regions.graph.objects.shape == regions.mask.shape
        assert regions.graph.relations.shape[1] == 0  # which the model derives from the boxes


def test_options_go_over_the_settings_and_are_checked(adaptive: PictureCaptioner, toy_images: RegionBatch) -> None:
    short = adaptive.caption(toy_images, DecodingConfig(max_length=9), max_length=2)
    assert max(len(said.words) for said in short) <= 2
    with pytest.raises(SaccadeError, match=r'no setting "decoding\.beams"; did you mean "num_beams"'):
        adaptive.caption(toy_images, beams=3)
    with pytest.raises(SaccadeError, match="num_beams must be at least 1"):
        adaptive.caption(toy_images, num_beams=0)


def test_several_captions_of_a_picture(adaptive: PictureCaptioner, toy_images: RegionBatch) -> None:
    beams = adaptive.captions(toy_images, num_beams=4, max_length=8)
    assert [len(said) for said in beams] == [4] * 4
    for said in beams:
        assert [one.score for one in said] == sorted((one.score for one in said), reverse=True)
        assert len({one.text for one in said}) == 4
    assert [len(said) for said in adaptive.captions(toy_images, num_beams=4, keep=2, max_length=8)] == [2] * 4
    torch.manual_seed(0)
    first = adaptive.captions(toy_images, strategy="sample", num_return_sequences=3, max_length=8)
    torch.manual_seed(0)
    again = adaptive.captions(toy_images, strategy="sample", num_return_sequences=3, max_length=8)
    assert [[one.text for one in said] for said in first] == [[one.text for one in said] for said in again]
    assert [len(said) for said in first] == [3] * 4


def test_the_same_from_paths_arrays_and_regions(
    updown: PictureCaptioner, pictures: list[np.ndarray], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path, picture in zip(paths, pictures, strict=True):
        Image.fromarray(picture).save(path)
    wanted = [said.text for said in updown.caption(pictures)]
    assert [said.text for said in updown.caption(paths)] == wanted
    assert [said.text for said in updown.caption(updown.extract(pictures))] == wanted
    assert [said.text for said in updown.caption(paths[1])] == wanted[1:2]
    assert updown.caption([]) == []


def test_many_pictures_are_captioned_part_by_part(
    adaptive: PictureCaptioner, toy_images: RegionBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [said.text for said in adaptive.caption(toy_images, max_length=8)]
    monkeypatch.setattr("saccade.tasks.captioning.predict.BATCH_SIZE", 3)
    assert [said.text for said in adaptive.caption(toy_images, max_length=8)] == wanted


def test_an_explanation_shows_the_caption_or_a_sentence_that_was_given(
    updown: PictureCaptioner, pictures: list[np.ndarray], tmp_path: Path
) -> None:
    said = updown.caption(pictures[0], max_length=6)[0]
    own = updown.explain(pictures[0], max_length=6, title="mine")
    assert own.words == said.words
    assert own.generated
    assert own.title == "mine"
    np.testing.assert_allclose(own.weights, said.weights, atol=1e-5)
    save_explanation(own, tmp_path / "why.png")
    assert Image.open(tmp_path / "why.png").size[0] > 500
    given = updown.explain(pictures[0], "a red zebra")
    assert given.words == ("a", "red", "zebra")
    np.testing.assert_allclose(given.weights.sum(axis=1), 1, atol=1e-5)
    with pytest.raises(SaccadeError, match="knows none of the words"):
        updown.explain(pictures[0], "zebra okapi")


def test_a_sentence_is_told_as_likely_as_it_was_found(updown: PictureCaptioner, pictures: list[np.ndarray]) -> None:
    """Teacher forcing gives the decoder's own figures back."""
    said = updown.caption(pictures[0], strategy="greedy", suppress_unk=False, max_length=30)[0]
    assert "<unk>" not in said.words
    told = updown.teacher_force(pictures[0], said.text)
    assert told.words == said.words
    np.testing.assert_allclose(told.probabilities, said.probabilities, atol=1e-5)
    np.testing.assert_allclose(told.weights, said.weights, atol=1e-5)


def test_one_door_and_a_sentence_for_what_is_not_behind_it(vocabulary: Vocabulary, tmp_path: Path) -> None:
    Scan(ScanConfig(12, 8, 16), vocabulary).save_pretrained(tmp_path / "scan")
    UpDown(UpDownConfig(12, 8, 16, 6), vocabulary).save_pretrained(tmp_path / "updown")
    assert isinstance(saccade.load(tmp_path / "scan"), PictureMatcher)
    assert isinstance(saccade.load(tmp_path / "updown"), PictureCaptioner)
    with pytest.raises(SaccadeError, match="holds a model of scan, which matches pictures with sentences"):
        load(tmp_path / "scan", kind=PictureCaptioner)
    with pytest.raises(SaccadeError, match="holds a model of updown, which captions pictures"):
        load(tmp_path / "updown", kind=PictureMatcher)
    with pytest.raises(SaccadeError, match="cannot read pictures"):
        saccade.load(tmp_path / "updown").caption("x.png")
