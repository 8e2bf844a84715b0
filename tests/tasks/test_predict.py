"""The Python API on pictures of the world: load, score, rank, explain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import saccade
from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.explain import save_explanation
from saccade.language import Vocabulary
from saccade.models import DenseCap, DenseCapConfig, Scan, ScanConfig
from saccade.tasks.dense_captioning.task import PictureDescriber
from saccade.tasks.matching.task import PictureMatcher
from saccade.tasks.predict import extractor_of, load
from saccade.vision import load_extractor
from saccade.vision.detectors import world
from saccade.world import WorldConfig, make_world


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    split = make_world(WorldConfig(pictures=20, hard_groups=0, novel=0), folder / "world", workers=1).split("train")
    paths = [folder / f"{i}.png" for i in range(3)]
    for i, path in enumerate(paths):
        Image.fromarray(split.image(i)).save(path)
    return paths


@pytest.fixture
def folder(vocabulary: Vocabulary, tmp_path: Path) -> Path:
    """A run folder with an untrained model: loading and shapes are the matter here, not the scores."""
    torch.manual_seed(0)
    Scan(ScanConfig(256, 8, 16), vocabulary, "world").save_pretrained(tmp_path / "run" / "best")
    return tmp_path / "run"


def test_scores_are_the_same_from_paths_arrays_and_regions(folder: Path, pictures: list[Path]) -> None:
    model = saccade.load(folder)
    texts = ["a red cube", "a small blue ball on the left"]
    scores = model.score(pictures, texts)
    assert scores.shape == (3, 2)
    arrays = [np.asarray(Image.open(p)) for p in pictures]
    np.testing.assert_allclose(model.score(arrays, texts), scores, atol=1e-6)
    np.testing.assert_allclose(model.score(model.extract(pictures), texts), scores, atol=1e-6)
    np.testing.assert_allclose(model.score(pictures[1], texts[0]), scores[1:2, :1], atol=1e-5)


def test_rank_orders_by_score(folder: Path, pictures: list[Path]) -> None:
    model = saccade.load(folder)
    scores = model.score(pictures, "a red cube")[:, 0]
    ranked = model.rank("a red cube", pictures, top=2)
    assert [i for i, _ in ranked] == np.argsort(-scores)[:2].tolist()
    assert ranked[0][1] == pytest.approx(scores.max(), abs=1e-6)


def test_an_explanation_has_a_row_per_word_and_its_score_is_the_models(
    folder: Path, pictures: list[Path], tmp_path: Path
) -> None:
    model = saccade.load(folder)
    explanation = model.explain(pictures[0], "a red cube")
    assert explanation.words == ("a", "red", "cube")
    np.testing.assert_allclose(explanation.weights.sum(axis=1), 1, atol=1e-5)
    assert explanation.score == pytest.approx(model.score(pictures[0], "a red cube")[0, 0], abs=1e-5)
    save_explanation(explanation, tmp_path / "why.png")
    assert Image.open(tmp_path / "why.png").size[0] > 500


def test_a_model_of_unknown_features_asks_for_regions(vocabulary: Vocabulary, tmp_path: Path) -> None:
    Scan(ScanConfig(12, 8, 16), vocabulary).save_pretrained(tmp_path / "model")
    model = saccade.load(tmp_path / "model")
    regions = RegionBatch.of([np.zeros((2, 12), np.float32)], [np.zeros((2, 4), np.float32)])
    assert model.score(regions, "a red cube").shape == (1, 1)
    with pytest.raises(SaccadeError, match="cannot read pictures"):
        model.score("x.png", "a red cube")


def test_a_dense_captioner_describes_parts_of_pictures(
    vocabulary: Vocabulary, pictures: list[Path], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config = DenseCapConfig(
        backbone="world", size=32, stride=4, map_dim=8, scales=(0.3,), ratios=(1.0,), rpn_dim=8, dim=8, word_dim=8,
        hidden_dim=8, proposals=20, final_overlap=0.6,
    )  # fmt: skip
    DenseCap(config, vocabulary).save_pretrained(tmp_path / "run" / "best")
    model = saccade.load(tmp_path / "run")
    assert isinstance(model, PictureDescriber)
    told = model.describe(pictures, top=3, least=0.0)
    assert [len(regions) for regions in told] == [3, 3, 3]
    for regions in told:
        scores = [region.score for region in regions]
        assert scores == sorted(scores, reverse=True)
        assert all(word in vocabulary for region in regions for word in region.phrase.split())
    arrays = [np.asarray(Image.open(path)) for path in pictures]
    assert [[r.phrase for r in one] for one in model.describe(arrays, 3, 0.0)] == [
        [r.phrase for r in one] for one in told
    ]
    assert [r.phrase for r in model.describe(pictures[1], 3, 0.0)[0]] == [r.phrase for r in told[1]]
    assert model.describe(pictures[0], least=1.0) == [[]]
    model.draw(pictures[0], top=2, least=0.0).save(tmp_path / "phrases.png")
    assert Image.open(tmp_path / "phrases.png").width > 500
    with pytest.raises(SaccadeError, match="binds no words to regions: it describes parts of pictures"):
        model.explain(pictures[0], "a red cube")
    with pytest.raises(SaccadeError, match=r"a model of densecap, which describes parts .* \(`saccade densecap`\)"):
        load(tmp_path / "run", kind=PictureMatcher)


def test_the_extractor_of_a_model_has_a_name(folder: Path, vocabulary: Vocabulary, tmp_path: Path) -> None:
    assert extractor_of(folder) == "world"
    assert load_extractor(extractor_of(world.SHIPPED)).digest == load_extractor("world").digest  # a detector is one
    Scan(ScanConfig(12, 8, 16), vocabulary).save_pretrained(tmp_path / "model")
    with pytest.raises(SaccadeError, match="model names no extractor: it reads pixels itself, or features"):
        extractor_of(tmp_path / "model")
