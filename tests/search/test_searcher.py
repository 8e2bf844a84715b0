"""Two-stage search: what the stages find, how terms join, and every kind of matcher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.data import StoreWriter
from saccade.language import Vocabulary
from saccade.metrics.calibration import Platt
from saccade.models import Hgr, HgrConfig, Scan, ScanConfig, entry
from saccade.search import Index, Query, Searcher
from saccade.search import searcher as module
from saccade.search.coding import image_code
from saccade.search.engines.searcher import rerank
from saccade.search.measure import evaluate
from saccade.tasks.matching.task import PictureMatcher
from saccade.tasks.predict import load
from saccade.vision.extractors import trainable_backbone
from tests.toy_runs import transformer_sizes

TEXT, OTHER = "a red cube left of a blue ball", "the green ball"
DIM = 6


def make_store(folder: Path, count: int = 60, dim: int = DIM) -> None:
    draw = np.random.default_rng(0)
    with StoreWriter(folder, dim, extractor="somewhere") as writer:
        for n in range(count):
            regions = 2 + n % 4
            boxes = np.sort(draw.random((regions, 4)).astype(np.float32), axis=1)[:, [0, 1, 2, 3]]
            writer.append(f"{n:03d}", draw.normal(size=(regions, dim)).astype(np.float32), boxes, 10, 10)


@pytest.fixture
def searcher(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Searcher:
    torch.manual_seed(0)
    Scan(ScanConfig(DIM, 8, 16, pool="mean"), vocabulary, "somewhere").save_pretrained(tmp_path / "model")
    make_store(tmp_path / "store")
    with Index.create(tmp_path / "index", str(tmp_path / "model"), codes="float16") as index:
        index.update(tmp_path / "store")
    monkeypatch.setattr(module, "EXACT_NUMBERS", 0)  # or so few are all scored
    return Searcher(Index.open(tmp_path / "index"))


def ids(found: object) -> list[str]:
    return [hit.id for hit in found.hits]  # type: ignore[attr-defined]


def test_the_second_stage_ranks_the_candidates_as_scoring_everything_does(searcher: Searcher) -> None:
    exact = searcher.search(Query(TEXT, top=60, exact=True))
    assert exact.exact
    two = searcher.search(Query(TEXT, top=5, candidates=20))
    assert not two.exact
    assert two.total == 60
    order = [id for id in ids(exact) if id in set(ids(searcher.search(Query(TEXT, top=20, candidates=20))))]
    assert ids(two) == order[:5]
    scores = {hit.id: hit.score for hit in exact.hits}
    for hit in two.hits:
        assert hit.score == pytest.approx(scores[hit.id], abs=1e-5)
    assert ids(searcher.search(Query(TEXT, top=5, candidates=60))) == ids(exact)[:5]


def test_candidates_may_be_those_whose_regions_fit_the_words(searcher: Searcher) -> None:
    """MaxSim by hand over all codes gives the same candidates."""
    snapshot = searcher.index.snapshot()
    codes = searcher._read([Query(TEXT)])[2]
    assert codes is not None
    stored, _ = searcher._codes(snapshot, np.arange(60))
    images = image_code(stored, searcher.kept, searcher.device)
    table = torch.einsum("wd,prd->pwr", codes.words[0][codes.mask[0]], images.regions)
    best = table.masked_fill(~images.mask[:, None], -torch.inf).amax(dim=2).sum(dim=1)
    found = searcher.search(Query(TEXT, top=6, candidates=6, maxsim=True))
    assert not found.exact
    assert set(ids(found)) == {snapshot.ids[n] for n in best.topk(6).indices.tolist()}
    some = searcher.search(Query(TEXT, top=3, candidates=6, maxsim=True, where="regions = 5"))
    assert {hit.metadata["regions"] for hit in some.hits} == {5}
    by_picture = Query(like_id="010", top=5, candidates=6)  # which has no words
    assert ids(searcher.search(replace(by_picture, maxsim=True))) == ids(searcher.search(by_picture))
    every = evaluate(searcher, [TEXT, OTHER], top=5, candidates=(5, 59), maxsim=True)
    assert every.rows[-1].recall > 0.9


def test_a_small_collection_is_scored_whole(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not searcher.search(Query(TEXT, top=5, candidates=10)).exact
    monkeypatch.setattr(module, "EXACT_NUMBERS", 10**6)
    assert searcher.search(Query(TEXT, top=5, candidates=10)).exact


def test_codes_read_from_disk_score_as_those_in_memory(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = searcher.search(Query(TEXT, top=60))
    monkeypatch.setattr(module, "HELD_BYTES", 0)
    monkeypatch.setattr(module, "EXACT_TILE_BYTES", 2000)
    searcher._held = None
    found = searcher.search(Query(TEXT, top=60))
    assert {hit.id: pytest.approx(hit.score, abs=1e-5) for hit in found.hits} == {h.id: h.score for h in wanted.hits}


def test_many_queries_at_once_are_answered_as_each_alone(searcher: Searcher) -> None:
    queries = [
        Query(TEXT, top=4),
        Query(OTHER, top=3, minus=("a cube",)),
        Query(like_id="007", top=2),
        Query(TEXT, top=4),
    ]
    for found, query in zip(searcher.search_many(queries), queries, strict=True):
        alone = searcher.search(query)
        assert ids(found) == ids(alone)
        np.testing.assert_allclose([h.score for h in found.hits], [h.score for h in alone.hits], atol=1e-5)
    assert searcher.search_many([]) == []


def test_terms_join_by_their_probabilities(searcher: Searcher) -> None:
    both = searcher.search(Query(TEXT, plus=(OTHER,), top=60))
    one, other = ({h.id: h.score for h in searcher.search(Query(t, top=60)).hits} for t in (TEXT, OTHER))
    for hit in both.hits:
        assert hit.probability is None
        assert hit.score == pytest.approx((one[hit.id] + other[hit.id]) / 2, abs=1e-4)
    without = searcher.search(Query(TEXT, minus=(OTHER,), top=60))
    assert without.hits[0].score == pytest.approx(max(one[id] - other[id] for id in one), abs=1e-4)
    curve = searcher.matcher.model.calibration = Platt(8.0, -1.0)
    chances = {id: float(curve(np.array(one[id])) * (1 - curve(np.array(other[id])))) for id in one}
    without = searcher.search(Query(TEXT, minus=(OTHER,), top=60))
    assert [h.probability for h in without.hits] == pytest.approx(sorted(chances.values(), reverse=True), abs=1e-4)
    for hit in without.hits:
        assert hit.probability == pytest.approx(chances[hit.id], abs=1e-4)
        assert float(curve(np.array(hit.score))) == pytest.approx(chances[hit.id], abs=1e-4)
    assert without.fits == (max(chances.values()) >= 0.5)


def test_a_filter_is_applied_before_the_candidates(searcher: Searcher) -> None:
    found = searcher.search(Query(TEXT, where="regions = 5 AND id < '020'", top=60))
    assert sorted(ids(found)) == ["003", "007", "011", "015", "019"]
    assert found.total == 5
    assert searcher.search(Query(TEXT, where="regions > 90")).hits == ()
    for where, said in (
        ("widht > 3", 'no column "widht"; did you mean "width"'),
        ("codes IS NOT NULL", 'no column "codes"'),
        ("width > ", "cannot be read"),
        ("width = 'unclosed", "not closed"),
        ("width = 1; DROP TABLE pictures", "without line breaks and semicolons"),
        ("read_parquet('/etc/passwd') = 1", 'no column "read_parquet"'),
        ("id = '" + "x" * 3000 + "'", "at most 2,000"),
    ):
        with pytest.raises(SaccadeError, match=said):
            searcher.search(Query(TEXT, where=where))


def test_a_picture_finds_itself_and_a_region_what_holds_it(searcher: Searcher) -> None:
    found = searcher.search(Query(like_id="010", top=60, exact=True))
    assert found.hits[0].id == "010"
    assert found.hits[0].score == pytest.approx(1, abs=1e-3)
    assert found.hits[0].probability is None
    part = searcher.search(Query(like_id="010", region=(0.0, 0.0, 1.0, 1.0), top=1, exact=True))
    assert ids(part) == ["010"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query(), "needs a sentence or a picture"),
        (Query(minus=("a cube",)), "needs a sentence or a picture"),
        (Query("a cube " * 5000), "at most 200 words"),
        (Query("zebra xylophone"), "knows none of the words"),
        (Query(TEXT, top=0), "must be at least 1"),
        (Query(TEXT, region=(0, 0, 1, 1)), "say of which one"),
        (Query(like_id="010", region=(0.5, 0, 0.2, 1)), "x1,y1,x2,y2 in 0..1"),
        (Query(like_id="../../etc/passwd"), "is not in the index"),
        (Query(TEXT, plus=tuple("a cube" for _ in range(40))), "at most 20 sentences"),
    ],
)
def test_a_query_that_cannot_be_answered_gets_one_sentence(query: Query, said: str, searcher: Searcher) -> None:
    with pytest.raises(SaccadeError, match=said):
        searcher.search(query)


def test_a_search_box_reads_what_must_not_fit() -> None:
    query = Query.parse('a man-made lake -snow -"two dogs" at dawn')
    assert query.text == "a man-made lake at dawn"
    assert query.minus == ("snow", "two dogs")


def test_both_stages_are_measured(searcher: Searcher) -> None:
    found = evaluate(searcher, [TEXT, OTHER], top=5, candidates=(5, 30, 59))
    assert [row.candidates for row in found.rows] == [5, 30, 59]
    recalls = [row.recall for row in found.rows]
    assert recalls == sorted(recalls)
    assert recalls[-1] >= 0.9


@pytest.mark.parametrize(("system", "reduced"), [("scan", True), ("imram", False)])
def test_codes_in_their_subspace_score_as_the_model_does(
    system: str, reduced: bool, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    kind = entry(system).model
    torch.manual_seed(0)
    kind(kind.Config(region_dim=DIM, word_dim=8, dim=32), vocabulary, "somewhere").save_pretrained(tmp_path / "model")
    make_store(tmp_path / "store", 9)
    with Index.create(tmp_path / "index", str(tmp_path / "model"), codes="float16") as index:
        index.update(tmp_path / "store")
        assert index.settings.kept.reduced == reduced
        assert index.settings.kept.dim == (DIM + 2 if reduced else 32)  # of a bias, and of what lies outside
        found = Searcher(index).search(Query(TEXT, top=9))
    matcher = load(tmp_path / "model", kind=PictureMatcher)
    scores = {id: s[0] for id, _, s in matcher.score_places([], [_open(tmp_path / "store")], [TEXT])}
    assert {hit.id: pytest.approx(hit.score, abs=3e-3) for hit in found.hits} == scores
    if reduced:
        (tmp_path / "index/basis.safetensors").write_bytes(b"damaged")
        with Index.open(tmp_path / "index") as index, pytest.raises(SaccadeError, match="damaged"):
            Searcher(index)


SYSTEMS = ("scan", "imram", "gsmn", "camp", "vse", "vsrn", "align2ground", "interbert_matching", "pixelbert_matching")


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_matcher_searches(system: str, vocabulary: Vocabulary, tmp_path: Path) -> None:
    """With codes of float16, exact scores are the model's own; without a common space all are scored."""
    kind = entry(system).model
    torch.manual_seed(0)
    sizes = {"region_dim": 12, "dim": 16, **({"word_dim": 6} if "word_dim" in vars(kind.Config()) else {})}
    config = kind.Config(**{**sizes, **transformer_sizes(kind.Config)})
    model = kind(config, vocabulary, "somewhere").eval()
    model.save_pretrained(tmp_path / "model")
    make_store(tmp_path / "store", 12, 12)
    with Index.create(tmp_path / "index", str(tmp_path / "model"), codes="float16") as index:
        index.update(tmp_path / "store")
        found = Searcher(index).search(Query(TEXT, top=12, exact=True))
    matcher = load(tmp_path / "model", kind=PictureMatcher)
    scores = {id: s[0] for id, _, s in matcher.score_places([], [_open(tmp_path / "store")], [TEXT])}
    assert {hit.id: pytest.approx(hit.score, rel=2e-2, abs=2e-2) for hit in found.hits} == scores
    assert all(hit.words for hit in found.hits)


def _open(folder: Path):  # type: ignore[no-untyped-def]
    from saccade.data import FeatureStore

    return FeatureStore.open(folder)


def test_videos_are_found_by_a_model_of_videos(
    vocabulary: Vocabulary, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from saccade.vision.videos import write_video

    torch.manual_seed(0)
    config = HgrConfig(region_dim=512, word_dim=8, dim=16, actions=2, entities=3)
    Hgr(config, vocabulary, "frames:world,rate=4,places=2").save_pretrained(tmp_path / "videos-model")
    Scan(ScanConfig(256, 8, 16), vocabulary, "world").save_pretrained(tmp_path / "photos-model")
    (tmp_path / "films").mkdir()
    for name, colour in (("red", (200, 20, 20)), ("blue", (20, 20, 200))):
        frames = [np.full((48, 64, 3), 230, np.uint8) for _ in range(8)]
        for n, frame in enumerate(frames):
            frame[10:30, 5 * n : 5 * n + 20] = colour
        write_video(str(tmp_path / f"films/{name}.mp4"), frames, 4.0)
    for model in ("videos-model", "photos-model"):
        with Index.create(tmp_path / f"index-{model}", str(tmp_path / model)) as index:
            assert index.update(tmp_path / "films").added == 2
            found = Searcher(index).search(Query("the red ball is left of a cube"))
            assert sorted(ids(found)) == ["blue.mp4", "red.mp4"]
            assert found.hits[0].metadata["kind"] == "video"
            assert found.hits[0].metadata["seconds"] == pytest.approx(2.0, abs=0.3)
            why = Searcher(index).explain("red.mp4", "the red ball")
            assert why.title == "red.mp4"
            assert why.weights.shape == (len(why.words), len(why.boxes))
            assert why.boxes.min() == 0
            assert why.boxes.max() <= 1
    with Index.open(tmp_path / "index-photos-model") as index:
        query = Query("the red ball is left of a cube", top=2)
        first = Searcher(index).search(query)
    second = load(tmp_path / "videos-model", kind=PictureMatcher)
    better = {hit.id: hit.score for hit in rerank(first, query, second).hits}  # HGR looks at the films anew
    with Index.open(tmp_path / "index-videos-model") as index:
        own = {hit.id: hit.score for hit in Searcher(index).search(query).hits}
    assert better == pytest.approx(own, abs=0.02)
    assert "Traceback" not in capfd.readouterr().err  # of what a library starts in the processes that decode
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "photos/a.png")
    with (
        Index.open(tmp_path / "index-videos-model", write=True) as index,
        pytest.raises(SaccadeError, match="learned from videos"),
    ):
        index.update(tmp_path / "photos")


def test_an_explanation_comes_from_the_stored_codes(vocabulary: Vocabulary, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Scan(ScanConfig(trainable_backbone("grid:world@16").dim, 8, 16), vocabulary)
    model.backbone = trainable_backbone("grid:world@16")
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "photos").mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (4, 4, 3), np.uint8)
    Image.fromarray(pixels).resize((64, 48)).save(tmp_path / "photos/a.png")
    with Index.create(tmp_path / "index", str(tmp_path / "model"), codes="float16") as index:
        index.update(tmp_path / "photos")
        searcher = Searcher(index)
        found = searcher.explain("a.png", TEXT)
        wanted = searcher.matcher.explain(tmp_path / "photos/a.png", TEXT)
        np.testing.assert_allclose(found.weights, wanted.weights, atol=5e-3)
        np.testing.assert_array_equal(found.image, wanted.image)
        (tmp_path / "photos/a.png").unlink()
        assert searcher.explain("a.png", TEXT).image.shape == (48, 64, 3)  # the thumbnail
