"""`saccade score`: photos or a store of them, one bad file among many, and what is said of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.data import StoreWriter
from saccade.language import Vocabulary
from saccade.models import Adaptive, AdaptiveConfig, Scan, ScanConfig
from saccade.vision.extractors import trainable_backbone

Saccade = Callable[..., tuple[int, str, str]]
TEXT = "a red cube"


@pytest.fixture
def place(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A matcher of the world's regions, one with a backbone of its own, a captioner with it too, and six photos."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    torch.manual_seed(0)
    Scan(ScanConfig(256, 8, 16), vocabulary, "world").save_pretrained("model")
    backbone = trainable_backbone("grid:world@16")
    with torch.no_grad():
        for weight in backbone.parameters():
            weight.mul_(1.1)  # trained a little further than the one of that name
    for name, model in (
        ("own", Scan(ScanConfig(backbone.dim, 8, 16), vocabulary)),
        ("writer", Adaptive(AdaptiveConfig(backbone.dim, 8, 16, 6), vocabulary)),
    ):
        model.backbone = backbone
        model.save_pretrained(name)
    Path("photos").mkdir()
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 255, (4, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((64 + number, 48)).save(f"photos/{number}.png")
    return tmp_path


def scores(saccade: Saccade, *words: object) -> dict[str, list[float]]:
    code, out, err = saccade("score", *words, "-t", TEXT, "-t", "the small ball", "--json")
    assert code == 0, err
    return {Path(row["picture"]).name: row["scores"] for row in json.loads(out)}


@pytest.mark.parametrize("model", ["model", "own"])
def test_a_store_that_was_extracted_for_the_model_scores_as_its_photos(
    model: str, place: Path, saccade: Saccade
) -> None:
    wanted = scores(saccade, "photos", "--model", model)
    for dtype, tolerance in (("float32", 1e-5), ("float16", 2e-3)):
        assert saccade("extract", "photos", "-o", dtype, "--model", model, "--dtype", dtype)[0] == 0
        found = scores(saccade, dtype, "--model", model)
        assert found.keys() == wanted.keys()
        np.testing.assert_allclose([found[name] for name in wanted], list(wanted.values()), atol=tolerance)


def test_a_captioner_reads_the_store_of_its_own_backbone(place: Path, saccade: Saccade) -> None:
    words = ["--model", "writer", "--max-length", 4, "--json"]
    assert saccade("extract", "photos", "-o", "store", "--model", "writer", "--dtype", "float32")[0] == 0
    assert saccade("caption", "photos", *words, "photos.json")[0] == 0
    assert saccade("caption", "store", *words, "store.json")[0] == 0
    assert Path("store.json").read_text() == Path("photos.json").read_text()


def test_a_store_of_another_extractor_is_refused(place: Path, saccade: Saccade) -> None:
    assert saccade("extract", "photos", "-o", "store", "--regions", "grid:world@16")[0] == 0
    code, out, err = saccade("score", "store", "-t", TEXT, "--model", "own")
    assert (code, out) == (2, "")
    assert err.startswith(
        "error: own reads pixels with a backbone of its own, store holds regions of another extractor"
    )
    code, out, err = saccade("score", "store", "-t", TEXT, "--model", "model")
    assert (code, "reads features of 256 numbers, store has" in err) == (2, True)


def test_one_bad_photo_is_told_and_the_others_are_scored(place: Path, saccade: Saccade) -> None:
    wanted = scores(saccade, "photos", "--model", "model")
    Path("photos/cut.png").write_bytes(Path("photos/0.png").read_bytes()[:60])
    Path("photos/lost.jpg").symlink_to("nowhere.jpg")
    for name in ("a.txt", "b.txt", "film.mov"):
        Path("photos", name).touch()
    code, out, err = saccade("score", "photos", "-t", TEXT, "-t", "the small ball", "--model", "model", "--json")
    assert code == 2
    found = {Path(row["picture"]).name: row["scores"] for row in json.loads(out)}
    assert found.keys() == wanted.keys()
    np.testing.assert_allclose([found[name] for name in wanted], list(wanted.values()), atol=1e-5)
    passed_over, cut, lost, count = err.splitlines()
    assert passed_over == "note: passed over 3 files that are no pictures: .txt 2, .mov 1"
    assert cut.startswith("error: photos/cut.png is a damaged or cut-off picture: ")
    assert lost == "error: photos/lost.jpg does not exist"
    assert count == "2 of 8 pictures could not be read"
    code, out, err = saccade("score", "photos/cut.png", "-t", TEXT, "--model", "model")
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("verb", ["detect", "graph"])
def test_so_it_is_with_what_finds_regions(verb: str, place: Path, saccade: Saccade) -> None:
    Path("photos/3.png").write_text("not a picture")
    code, out, err = saccade(verb, "photos", "--extractor", "world", "--top", 1)
    assert code == 2
    assert [f"{n}.png" in out for n in range(6)] == [n != 3 for n in range(6)]
    assert "error: photos/3.png is not a picture" in err
    assert err.endswith("1 of 6 pictures could not be read\n")
    code, out, err = saccade(verb, "photos/3.png", "--extractor", "world")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_top_0_shows_all(place: Path, saccade: Saccade) -> None:
    for top, count in ((0, 6), (2, 2), (9, 6)):
        code, out, _ = saccade("score", "photos", "-t", TEXT, "--model", "model", "--top", top)
        assert (code, out.count(".png")) == (0, count)
        assert ("and 4 more (--top 0 shows all)" in out) == (top == 2)
    assert saccade("score", "photos", "-t", TEXT, "--model", "model", "--top", -1)[0] == 2


def test_a_list_and_the_same_photo_twice(place: Path, saccade: Saccade) -> None:
    Path("list.txt").write_text("photos/1.png\nphotos/2.png\n")
    assert sorted(scores(saccade, "list.txt", "photos/1.png", "--model", "model")) == ["1.png", "2.png"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gone.jpg", "-t", TEXT], "gone.jpg does not exist"),
        (["empty", "-t", TEXT], "empty holds no picture"),
        (["store", "-t", TEXT], "store holds no pictures to score"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words: list[str], sentence: str, place: Path, saccade: Saccade) -> None:
    Path("empty").mkdir()
    with StoreWriter(Path("store"), 256, "float32", "world"):
        pass
    code, _, err = saccade("score", *words, "--model", "model")
    assert (code, err.startswith("error: "), err.count("\n"), sentence in err) == (2, True, 1, True)
