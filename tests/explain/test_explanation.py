from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.batch import Alignment
from saccade.core.errors import SaccadeError
from saccade.explain import Explanation, save_explanation

Make = Callable[..., Explanation]


def test_heat_has_the_pictures_size_or_the_one_asked_for(make: Make) -> None:
    explanation = make(height=90, width=160)
    assert explanation.heat(1).shape == (90, 160)
    assert explanation.heat(1, (30, 40)).shape == (30, 40)
    assert explanation.heat(1).max() == 1.0


def test_a_word_lights_what_it_looks_at(make: Make) -> None:
    explanation = make()
    red, ball = explanation.heat(1), explanation.heat(7)
    assert red[64, 32] > 0.9 > 0.2 > red[64, 96]
    assert ball[64, 96] > 0.9 > 0.2 > ball[64, 32]


def toy_alignment() -> Alignment:
    """Two pairs of up to 5 words (with <start> and <end>) and 3 regions; the second is shorter in both."""
    torch.manual_seed(0)
    return Alignment(
        weights=torch.rand(2, 5, 3, requires_grad=True),
        score=torch.tensor([0.9, 0.4]),
        word_mask=torch.tensor([[True] * 5, [True] * 4 + [False]]),
        region_mask=torch.tensor([[True] * 3, [True, True, False]]),
        word_score=torch.rand(2, 5),
    )


def test_from_alignment_drops_padding_and_special_words() -> None:
    alignment, boxes = toy_alignment(), np.random.default_rng(0).uniform(0, 1, (3, 4))
    image = Image.new("RGBA", (20, 10))
    explanation = Explanation.from_alignment(alignment, 1, ("<start>", "red", "ball", "<end>"), boxes, image, "why")
    assert explanation.words == ("red", "ball")
    np.testing.assert_allclose(explanation.weights, alignment.weights.detach()[1, 1:3, :2])
    np.testing.assert_allclose(explanation.boxes, boxes[:2])
    assert alignment.word_score is not None
    np.testing.assert_allclose(explanation.word_score, alignment.word_score[1, 1:3])  # type: ignore[arg-type]
    assert explanation.score == pytest.approx(0.4)
    assert explanation.image.shape == (10, 20, 3)
    assert explanation.title == "why"
    unpadded = Explanation.from_alignment(alignment, 1, ("<start>", "red", "ball", "<end>"), boxes[:2], image)
    np.testing.assert_allclose(unpadded.boxes, boxes[:2])


def rich_alignment(extra_words: int = 0, extra_regions: int = 0) -> Alignment:
    """One pair of <start> red ball <end> and 3 regions, with all that a model may tell, and padding at will."""
    torch.manual_seed(1)
    words, regions = 4 + extra_words, 3 + extra_regions

    def some(*shape: int) -> torch.Tensor:
        """Random where the pair is real, a number that must never be seen where it is padding."""
        real = {words: 4, regions: 3}
        inner, value = torch.rand(*(real.get(n, n) for n in shape)), torch.full(shape, 77.0)
        value[tuple(slice(n) for n in inner.shape)] = inner
        return value

    words_real, regions_real = torch.arange(words) < 4, torch.arange(regions) < 3
    return Alignment(
        weights=some(1, words, regions),
        score=torch.tensor([0.5]),
        word_mask=words_real[None],
        region_mask=regions_real[None],
        word_score=some(1, words),
        region_score=some(1, regions),
        steps=some(1, 2, words, regions),
        word_gate=some(1, words),
        region_gate=some(1, regions),
        word_links=some(1, words, words),
        region_links=some(1, regions, regions),
    )


OPTIONAL = ("word_score", "region_score", "steps", "word_gate", "region_gate", "word_links", "region_links")


def test_what_only_some_models_tell_loses_padding_and_special_words_too() -> None:
    words, boxes, image = ("<start>", "red", "ball", "<end>"), np.full((3, 4), 0.5), np.zeros((8, 8, 3), np.uint8)
    alignment = rich_alignment()
    plain = Explanation.from_alignment(alignment, 0, words, boxes, image)
    assert plain.steps is not None
    assert plain.word_links is not None
    np.testing.assert_allclose(plain.steps, alignment.steps[0, :, 1:3])  # type: ignore[index]
    np.testing.assert_allclose(plain.word_links, alignment.word_links[0, 1:3, 1:3])  # type: ignore[index]
    np.testing.assert_allclose(plain.word_gate, alignment.word_gate[0, 1:3])  # type: ignore[index,arg-type]
    np.testing.assert_allclose(plain.region_links, alignment.region_links[0])  # type: ignore[index,arg-type]
    for extra_words, extra_regions in ((3, 0), (0, 7), (3, 7)):
        padded = Explanation.from_alignment(rich_alignment(extra_words, extra_regions), 0, words, boxes, image)
        for name in OPTIONAL:
            np.testing.assert_array_equal(getattr(padded, name), getattr(plain, name))


def test_an_alignment_whose_parts_do_not_fit_is_refused() -> None:
    words, boxes, image = ("<start>", "red", "ball", "<end>"), np.full((3, 4), 0.5), np.zeros((8, 8, 3), np.uint8)
    good = rich_alignment()
    for name in OPTIONAL:
        bad = replace(good, **{name: getattr(good, name)[..., :-1]})
        with pytest.raises(SaccadeError, match=rf"the alignment's {name} must be \[pair, "):
            Explanation.from_alignment(bad, 0, words, boxes, image)


def test_from_alignment_refuses_words_or_boxes_of_another_pair() -> None:
    alignment, image = toy_alignment(), np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(SaccadeError, match="5 words, the sentence 3"):
        Explanation.from_alignment(alignment, 0, ("<start>", "red", "<end>"), np.zeros((3, 4)), image)
    with pytest.raises(SaccadeError, match="3 regions, but there are 2 boxes"):
        Explanation.from_alignment(alignment, 0, ("<start>", "a", "b", "c", "<end>"), np.zeros((2, 4)), image)


def test_wrong_shapes_and_numbers_are_named(make: Make) -> None:
    good = make()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"image": good.image[..., 0]}, "image must be uint8"),
        ({"image": good.image / 255}, "image must be uint8"),
        ({"words": ()}, "no words"),
        ({"weights": good.weights[:, :3]}, "weights must be"),
        ({"boxes": good.boxes[:, :2]}, "boxes must be"),
        ({"word_score": np.zeros(3)}, "9 word scores"),
        ({"weights": good.weights * np.nan}, "weights must be finite"),
        ({"score": float("inf")}, "score must be finite"),
        ({"region_score": np.zeros(9)}, r"region_score must be \[36 regions\]"),
        ({"steps": good.weights}, r"steps must be \[steps, 9 words, 36 regions\]"),
        ({"steps": good.weights[None][:0]}, "steps must be"),
        ({"word_gate": np.zeros((9, 1))}, r"word_gate must be \[9 words\]"),
        ({"word_gate": np.full(9, 1.5)}, r"word_gate must lie in 0\.\.1, not in 1\.5"),
        ({"region_gate": np.full(36, -0.1)}, "region_gate must lie"),
        ({"word_links": np.zeros((9, 8))}, r"word_links must be \[9 words, 9 words\]"),
        ({"region_links": np.zeros((9, 9))}, r"region_links must be \[36 regions, 36 regions\]"),
        ({"region_links": np.full((36, 36), np.nan)}, "region_links must be finite"),
    ]
    for changes, sentence in cases:
        with pytest.raises(SaccadeError, match=sentence):
            replace(good, **changes)


def test_save_makes_folders_and_a_whole_file(make: Make, tmp_path: Path) -> None:
    path = save_explanation(make(), tmp_path / "new" / "folder" / "why.png")
    with Image.open(path) as saved:
        saved.load()
        assert saved.format == "PNG"
        assert round(saved.info["dpi"][0]) == 192
    assert [p.name for p in path.parent.iterdir()] == ["why.png"]


@pytest.mark.parametrize("name", ["why.jpg", "why.webp", "why.PNG"])
def test_other_formats(make: Make, tmp_path: Path, name: str) -> None:
    with Image.open(save_explanation(make(("red", "ball")), tmp_path / name)) as saved:
        saved.load()


@pytest.mark.parametrize("name", ["why.gif", "why", "why.txt"])
def test_an_unknown_suffix_is_refused_before_anything_is_written(make: Make, tmp_path: Path, name: str) -> None:
    with pytest.raises(SaccadeError, match=r"saved as one of \.png"):
        save_explanation(make(), tmp_path / "folder" / name)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_explanation(make(("red",)), tmp_path / "why.png")
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(SaccadeError, match="disk is full"):
        save_explanation(make(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["why.png"]


def test_a_match_that_does_not_fit_shows_no_find(make: Callable[..., Explanation], tmp_path: Path) -> None:
    found = make()
    assert found.places
    unlikely = replace(found, probability=0.03)
    assert not unlikely.places
    assert unlikely.score_note == "nothing here fits (3 % that it does) · score 0.500"
    assert [place.words for place in replace(found, probability=0.97).places] == [place.words for place in found.places]
    unlikely.save(tmp_path / "no.png")
    replace(found, probability=0.97).save(tmp_path / "yes.png")
    assert (tmp_path / "no.png").read_bytes() != (tmp_path / "yes.png").read_bytes()


def test_unknown_words_find_nothing_and_say_so(make: Callable[..., Explanation]) -> None:
    found = replace(make(), unknown=frozenset(("cube",)))
    place = found.words.index("cube")
    assert found.names[place] == "cube (unknown)"
    assert found.names[place - 1] == "red"
    assert all(place not in where.words for where in found.places)
