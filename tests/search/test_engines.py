"""Every engine gives the candidates and codes that an index gives: Lance, Qdrant's client and shard, PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import saccade
from benchmarks.search_engines import page
from saccade.cli import main
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.data import StoreWriter
from saccade.language import Vocabulary
from saccade.models import Scan, ScanConfig
from saccade.search import Index, Query, Searcher
from saccade.search.engines import Engine, Kept, Row, copy_index, is_address, open_engine
from saccade.search.engines.base import check_settings, index_rows
from saccade.search.engines.conditions import Both, Comparison, Not, read_condition
from saccade.search.engines.lance import LanceEngine, ObjectStoreEngine, read_settings
from saccade.search.engines.postgres import hidden_password
from saccade.search.engines.qdrant import ServerPoints, server_engine
from saccade.search.engines.searcher import EngineSearcher, rerank
from tests.tiny_duals import save_dual

COUNT = 40
TEXT = "a man rides a horse on the beach"
KINDS = ("lance", "storage", "client", "edge", "postgres")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP, some pictures and an index of them."""
    place = tmp_path_factory.mktemp("engines")
    save_dual(place / "clip", "clip")
    random = np.random.default_rng(5)
    (place / "photos").mkdir()
    for n in range(COUNT):
        coarse = Image.fromarray(random.integers(0, 255, (4, 4, 3), dtype=np.uint8))
        coarse.resize((40, 40 + n % 3)).save(place / "photos" / f"{n:02d}.png")
    metadata = {f"{n:02d}.png": {"stars": n % 5, "place": "sea" if n % 2 else "hill's"} for n in range(COUNT)}
    extra = {"stars": "int", "place": "text"}
    with Index.create(place / "index", str(place / "clip"), extra=extra) as index:
        index.update(place / "photos", metadata=metadata)
    return place


@pytest.fixture(scope="module")
def matcher(folder: Path) -> Any:
    return saccade.load(folder / "clip")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of this test's own, on a socket."""
    import pgserver

    found = pgserver.get_server(tmp_path_factory.mktemp("pg") / "data")
    yield found.get_uri()
    found.cleanup()


@pytest.fixture(scope="module")
def engines(folder: Path, server: str) -> Iterator[dict[str, Engine]]:
    from qdrant_client import QdrantClient

    with Index.open(folder / "index") as index:
        local = server_engine(ServerPoints(QdrantClient(":memory:"), "photos", True), "local", Kept.of(index))
        for rows in index_rows(index, 7):
            local.add(rows)
        stored = f"file-object-store://{folder / 'storage'}"  # a disk, by the code that speaks to object storage
        with ObjectStoreEngine(stored, Kept.of(index)) as storage:
            for rows in index_rows(index, 7):
                storage.add(rows)
        table = f"{server}{'&' if '?' in server else '?'}table=photos"
        assert copy_index(index, table) == COUNT
        assert copy_index(index, f"qdrant-edge:{folder / 'shard'}", maxsim=True) == COUNT
    found = {
        "lance": open_engine(folder / "index"),
        "storage": ObjectStoreEngine(stored),
        "client": local,
        "edge": open_engine(f"qdrant-edge:{folder / 'shard'}"),
        "postgres": open_engine(table),
    }
    yield found
    for engine in found.values():
        engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_finds_what_a_product_finds(kind: str, engines: dict[str, Engine]) -> None:
    engine, lance = engines[kind], engines["lance"]
    rows = {row.id: row for row in lance.fetch(lance.search(np.ones((1, 24), np.float32), COUNT)[0].ids)}
    wanted = np.random.default_rng(1).normal(size=(3, 24)).astype(np.float32)
    for vector, found in zip(wanted, engine.search(wanted, 10), strict=True):
        exact = {id: float(row.code.vector.astype(np.float32) @ vector) for id, row in rows.items()}
        best = sorted(exact.values(), reverse=True)[:10]
        np.testing.assert_allclose(found.scores, best, atol=3e-3)  # Lance multiplies in half precision
        np.testing.assert_allclose([exact[id] for id in found.ids], best, atol=3e-3)
    assert len(engine) == COUNT


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_back_as_they_went(kind: str, engines: dict[str, Engine]) -> None:
    ids = ["07.png", "00.png", "33.png"]
    for row, first in zip(engines[kind].fetch(ids), engines["lance"].fetch(ids), strict=True):
        assert row.id == first.id
        np.testing.assert_array_equal(row.code.codes, first.code.codes)
        np.testing.assert_array_equal(row.code.boxes, first.code.boxes)
        np.testing.assert_array_equal(row.code.vector, first.code.vector)
        assert row.code.scale == pytest.approx(first.code.scale, rel=1e-7)
        assert dict(row.metadata) == dict(first.metadata)
        assert row.thumbnail == first.thumbnail
    with pytest.raises(SaccadeError, match="nowhere"):
        engines[kind].fetch(["00.png", "nowhere.png"])


CONDITIONS: dict[str, Callable[[int], bool]] = {
    "stars > 2": lambda n: n % 5 > 2,
    "stars >= 3 AND place = 'sea'": lambda n: n % 5 >= 3 and n % 2 == 1,
    "place = 'hill''s' OR stars = 0": lambda n: n % 2 == 0 or n % 5 == 0,
    "NOT (stars IN (1, 2) OR place != 'sea')": lambda n: n % 5 not in (1, 2) and n % 2 == 1,
    "stars IS NULL": lambda n: False,
    "camera IS NULL AND stars <= 1": lambda n: n % 5 <= 1,
}


@pytest.mark.parametrize("kind", KINDS)
def test_conditions_mean_the_same_everywhere(kind: str, engines: dict[str, Engine]) -> None:
    vector = np.ones((1, 24), np.float32)
    for where, holds in CONDITIONS.items():
        (found,) = engines[kind].search(vector, COUNT, where)
        assert sorted(found.ids) == [f"{n:02d}.png" for n in range(COUNT) if holds(n)], where
    with pytest.raises(SaccadeError, match="no column"):
        engines[kind].search(vector, 3, "colour = 'red'")


@pytest.mark.parametrize(
    "where", ["stars >", "stars = 1; DROP TABLE photos", "(stars = 1", "stars = 'x", "1 = 1", "x" * 3000]
)
def test_what_is_no_condition_is_refused(where: str) -> None:
    with pytest.raises(SaccadeError, match="--where"):
        read_condition(where, ["stars"])


def test_a_condition_is_read_into_a_tree() -> None:
    read = read_condition("a = 'it''s' AND NOT (b > -1.5 OR c IN (1, 2))", ["a", "b", "c"])
    either = Both((Comparison("b", ">", (-1.5,)), Comparison("c", "in", (1, 2))), any=True)
    assert read == Both((Comparison("a", "=", ("it's",)), Not(either)))
    assert read_condition("  ", []) is None
    deep = "(" * 50 + "a = 1" + ")" * 50
    with pytest.raises(SaccadeError, match="brackets"):
        read_condition(deep, ["a"])


@pytest.mark.parametrize("kind", KINDS)
def test_two_stages_over_an_engine_are_those_over_an_index(
    kind: str, engines: dict[str, Engine], folder: Path, matcher: Any
) -> None:
    query = Query(TEXT, minus=("a dog",), where="stars > 0", top=5, candidates=COUNT)
    with Index.open(folder / "index") as index:
        expected = Searcher(index, matcher).search(replace(query, exact=True))
        found = EngineSearcher(engines[kind], matcher).search(query)
        np.testing.assert_allclose([hit.score for hit in found.hits], [hit.score for hit in expected.hits], atol=1e-5)
        assert {hit.id for hit in found.hits} == {hit.id for hit in expected.hits}
        first = found.hits[0]
        assert [word.word for word in first.words] == TEXT.split()
        assert first.metadata["stars"] > 0
        assert found.total == COUNT
    assert first.path == ""  # no file that an engine names is opened
    assert first.metadata["path"].endswith(first.id)
    like = EngineSearcher(engines[kind], matcher).search(Query(like_id="05.png", top=3))
    assert like.hits[0].id == "05.png"
    why = EngineSearcher(engines[kind], matcher).explain(first.id, TEXT)
    assert why.weights.shape == (8, 16)
    assert why.score == pytest.approx(float(matcher.score([folder / "photos" / first.id], TEXT)[0, 0]), abs=0.05)


def test_maxsim_of_qdrant_chooses_the_candidates(engines: dict[str, Engine], matcher: Any) -> None:
    """Of four times as many by the vectors of whole pictures, those whose regions fit the words best."""
    edge: Any = engines["edge"]
    words = matcher.model.encode_texts(matcher.read(TEXT)).words[0].numpy()
    vector = np.ones((1, 24), np.float32)
    rows = edge.fetch(edge.search(vector, 12)[0].ids)
    exact = {row.id: (row.code.codes * np.float32(row.code.scale) @ words.T).max(axis=0).sum() for row in rows}
    for kind in ("edge", "client"):
        (found,) = engines[kind].search(vector, 3, words=[words])  # type: ignore[call-arg]
        np.testing.assert_allclose(found.scores, sorted(exact.values(), reverse=True)[:3], rtol=5e-3)


@pytest.mark.parametrize("kind", ["storage", "client", "edge", "postgres"])
def test_rows_are_replaced_and_deleted(kind: str, engines: dict[str, Engine]) -> None:
    engine = engines[kind]
    (row,) = engine.fetch(["09.png"])
    try:
        engine.add([replace(row, metadata={**row.metadata, "stars": 99})])
        assert engine.search(np.ones((1, 24), np.float32), 5, "stars = 99")[0].ids == ("09.png",)
        assert len(engine) == COUNT
        engine.delete(["09.png"])
        assert len(engine) == COUNT - 1
    finally:
        engine.add([row])
    assert len(engine) == COUNT


def test_rows_go_back_into_an_index(engines: dict[str, Engine], folder: Path, tmp_path: Path) -> None:
    ids = ["03.png", "04.png"]
    rows = engines["postgres"].fetch(ids)
    Index.create(tmp_path / "index", str(folder / "clip"), extra={"stars": "int", "place": "text"}).close()
    with LanceEngine(tmp_path / "index", write=True) as lance:
        lance.add(rows)
        lance.add(rows[:1])
        assert len(lance) == 2
        for row, known in zip(lance.fetch(ids), engines["lance"].fetch(ids), strict=True):
            assert dict(row.metadata) == dict(known.metadata)
            np.testing.assert_array_equal(row.code.codes, known.code.codes)
        lance.delete(["04.png"])
        assert not lance.index.check()


def test_a_row_that_was_changed_on_the_way_is_refused(engines: dict[str, Engine]) -> None:
    engine: Any = engines["postgres"]
    (row,) = engine.fetch(["11.png"])
    engine._run(
        "UPDATE {table} SET codes = set_byte(codes, 3, 1 + get_byte(codes, 3) %% 100) WHERE id = %s", ["11.png"]
    )
    with pytest.raises(SaccadeError, match="damaged"):
        engine.fetch(["11.png"])
    engine.add([row])


def test_engines_refuse_what_they_cannot_do(
    engines: dict[str, Engine], folder: Path, server: str, matcher: Any, tmp_path: Path
) -> None:
    assert is_address("qdrant+http://host/x")
    assert not is_address(str(folder))
    settings = engines["lance"].settings
    with pytest.raises(SaccadeError, match="exists"):
        open_engine(f"{server}{'&' if '?' in server else '?'}table=photos", Kept(settings))
    with pytest.raises(SaccadeError, match="no index"):
        open_engine(f"{server}{'&' if '?' in server else '?'}table=nothing")
    with pytest.raises(SaccadeError, match="table=NAME"):
        open_engine("postgresql://me:secret@host/db")
    assert hidden_password("postgresql://me:secret@host/db") == "postgresql://me:…@host/db"
    with pytest.raises(SaccadeError, match="in the way"):
        open_engine(f"qdrant-edge:{folder / 'shard'}", Kept(settings))
    with pytest.raises(SaccadeError, match="in the way"):
        ObjectStoreEngine(f"file-object-store://{folder / 'storage'}", Kept(settings))
    with pytest.raises(SaccadeError, match="holds no index"):
        ObjectStoreEngine(f"file-object-store://{tmp_path / 'nothing'}")
    assert is_address("s3://bucket/photos")
    with pytest.raises(SaccadeError, match="settings of its index are damaged"):
        read_settings([{"settings": "{"}], "s3://bucket/photos")
    with pytest.raises(SaccadeError, match="NAME was expected"):
        open_engine("qdrant+http://host:6333/")
    with pytest.raises(SaccadeError, match="give --model"):
        EngineSearcher(engines["postgres"])
    with pytest.raises(SaccadeError, match="gives candidates"):
        EngineSearcher(engines["postgres"], matcher).search(Query(TEXT, exact=True))
    without = replace(settings, kept=replace(settings.kept, vector_dim=0))
    with pytest.raises(SaccadeError, match="no vector of whole pictures"):
        check_settings(without)
    told = Kept(settings).to_json()
    assert Kept.from_json(told, "here").settings == settings
    lost = {**told, "settings": {**told["settings"], "kept": {**told["settings"]["kept"], "reduced": True}}}
    with pytest.raises(SaccadeError, match="basis"):
        Kept.from_json(lost, "here")
    with pytest.raises(SaccadeError, match="no index"):
        Kept.from_json([], "here")


def test_another_model_reranks(folder: Path, matcher: Any, tmp_path: Path) -> None:
    """By its own index of the same pictures, or by looking at the files."""
    save_dual(tmp_path / "siglip", "siglip")
    second = saccade.load(tmp_path / "siglip")
    with Index.create(tmp_path / "index", str(tmp_path / "siglip"), codes="float16") as other:
        other.update(folder / "photos")
    with Index.open(folder / "index") as index, Index.open(tmp_path / "index") as other:
        query = Query(TEXT, top=8)
        first = Searcher(index, matcher).search(query)
        photos = [folder / "photos" / hit.id for hit in first.hits]
        expected = dict(zip([hit.id for hit in first.hits], second.score(photos, TEXT)[:, 0].tolist(), strict=True))
        for reader, tolerance in ((Searcher(other, second), 0.02), (second, 0.02)):
            found = rerank(first, query, reader, "siglip")
            assert {hit.id for hit in found.hits} == set(expected)
            scores = [hit.score for hit in found.hits]
            np.testing.assert_allclose(scores, sorted(expected.values(), reverse=True), atol=tolerance)
            assert found.hits[0].probability is not None
            assert "rerank" in found.seconds
        kept_out = rerank(first, query, second, opens_files=False)  # of another user's index, no file is opened
        assert [hit.id for hit in kept_out.hits] == [hit.id for hit in first.hits]
        assert "8 of 8" in kept_out.missing[0]
        other_query = replace(first, hits=(*first.hits, replace(first.hits[0], id="gone.png", path="")))
        lost = rerank(other_query, replace(query, top=9), second)
        assert lost.hits[-1].id == "gone.png"
        assert "1 of 9" in lost.missing[0]


def test_rows_of_engines_are_plain(engines: dict[str, Engine]) -> None:
    row = engines["postgres"].fetch(["00.png"])[0]
    assert isinstance(row, Row)
    assert row.metadata["taken"].startswith("20")


def test_the_command_line_copies_searches_and_reranks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["saccade", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), *capsys.readouterr()

    address, index = f"qdrant-edge:{tmp_path / 'shard'}", folder / "index"
    assert run("index", "copy", index, address)[0] == 0
    asked = (TEXT, "--model", folder / "clip", "--json", "--top", 4)
    found = [json.loads(run("search", place, *asked, "--where", "stars > 1")[1]) for place in (address, index)]
    assert len(found[0]["hits"]) == 4
    assert [hit["id"] for hit in found[0]["hits"]] == [hit["id"] for hit in found[1]["hits"]]
    code, out, _ = run("search", index, *asked, "--rerank", index, "--candidates", 9)
    answer = json.loads(out)
    assert code == 0
    assert len(answer["hits"]) == 4
    assert "rerank" in answer["seconds"]
    code, _, error = run("index", "copy", index, "elsewhere")
    assert code == 2
    assert "qdrant-edge:FOLDER" in error
    assert "processes of its own" in run("search", address, *asked, "--ray", "auto")[2]
    assert "give --ray too" in run("search", index, *asked, "--shards", 2)[2]


def test_codes_in_a_subspace_are_scored_elsewhere_as_here(tmp_path: Path) -> None:
    """A linear encoder's codes are kept in fewer numbers; the engine keeps the basis."""
    torch.manual_seed(0)
    words = Vocabulary.build(["a red cube left of a small ball"] * 2, 1)
    Scan(ScanConfig(12, 8, 64), words, "grid").save_pretrained(tmp_path / "model")
    random = np.random.default_rng(0)
    with StoreWriter(tmp_path / "store", 12, extractor="grid") as writer:
        for n in range(9):
            boxes = np.sort(random.random((5, 4)).astype(np.float32), axis=1)
            writer.append(f"p{n}", random.normal(size=(5, 12)).astype(np.float32), boxes, 10, 10)
    with Index.create(tmp_path / "index", str(tmp_path / "model"), region_dim=12) as index:
        index.update(tmp_path / "store")
        assert index.settings.kept.reduced
        copy_index(index, f"qdrant-edge:{tmp_path / 'shard'}")
        query = Query("a red cube", top=9, exact=True)
        expected = {hit.id: hit.score for hit in Searcher(index).search(query).hits}
    with open_engine(f"qdrant-edge:{tmp_path / 'shard'}") as engine:
        found = EngineSearcher(engine, str(tmp_path / "model")).search(replace(query, exact=False))
    assert {hit.id: pytest.approx(hit.score, abs=1e-5) for hit in found.hits} == expected


def test_the_page_of_engines_is_made_from_its_figures() -> None:
    folder = Path(__file__).parents[2] / "docs" / "results"
    assert page(read_json(folder / "engines.json")) == (folder / "engines.md").read_text(encoding="utf-8")
