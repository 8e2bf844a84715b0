from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.batch import Alignment
from saccade.errors import SaccadeError
from saccade.explain import Explanation

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


def test_from_alignment_refuses_words_or_boxes_of_another_pair() -> None:
    alignment, image = toy_alignment(), np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(SaccadeError, match="5 words, the sentence 3"):
        Explanation.from_alignment(alignment, 0, ("<start>", "red", "<end>"), np.zeros((3, 4)), image)
    with pytest.raises(SaccadeError, match="3 regions, but there are 2 boxes"):
        Explanation.from_alignment(alignment, 0, ("<start>", "a", "b", "c", "<end>"), np.zeros((2, 4)), image)


def test_wrong_shapes_and_numbers_are_named(make: Make) -> None:
    good = make()
    for changes, sentence in [
        ({"image": good.image[..., 0]}, "image must be uint8"),
        ({"image": good.image / 255}, "image must be uint8"),
        ({"words": ()}, "no words"),
        ({"weights": good.weights[:, :3]}, "weights must be"),
        ({"boxes": good.boxes[:, :2]}, "boxes must be"),
        ({"word_score": np.zeros(3)}, "9 word scores"),
        ({"weights": good.weights * np.nan}, "weights must be finite"),
        ({"score": float("inf")}, "score must be finite"),
    ]:
        with pytest.raises(SaccadeError, match=sentence):
            replace(good, **changes)


def test_save_makes_folders_and_a_whole_file(make: Make, tmp_path: Path) -> None:
    path = make().save(tmp_path / "new" / "folder" / "why.png")
    with Image.open(path) as saved:
        saved.load()
        assert saved.format == "PNG"
        assert round(saved.info["dpi"][0]) == 192
    assert [p.name for p in path.parent.iterdir()] == ["why.png"]


@pytest.mark.parametrize("name", ["why.jpg", "why.webp", "why.PNG"])
def test_other_formats(make: Make, tmp_path: Path, name: str) -> None:
    with Image.open(make(("red", "ball")).save(tmp_path / name)) as saved:
        saved.load()


@pytest.mark.parametrize("name", ["why.gif", "why", "why.txt"])
def test_an_unknown_suffix_is_refused_before_anything_is_written(make: Make, tmp_path: Path, name: str) -> None:
    with pytest.raises(SaccadeError, match=r"saved as one of \.png"):
        make().save(tmp_path / "folder" / name)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(("red",)).save(tmp_path / "why.png")
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(SaccadeError, match="disk is full"):
        make().save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["why.png"]
