"""An index: what it takes in, what it notices, and that nothing committed is lost or believed when it is damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.data import StoreWriter
from saccade.language import Vocabulary
from saccade.models import Scan, ScanConfig
from saccade.search import Index, Query, Searcher
from saccade.search.coding import packed
from saccade.search.table import WRITING
from saccade.tasks.matching.task import PictureMatcher
from saccade.tasks.predict import load
from saccade.vision.extractors import trainable_backbone

TEXT = "a red cube left of a blue ball"


@pytest.fixture
def place(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A matcher with a backbone of its own, and eight photos."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    backbone = trainable_backbone("grid:world@16")
    model = Scan(ScanConfig(backbone.dim, 8, 16), vocabulary)
    model.backbone = backbone
    model.save_pretrained("model")
    Path("photos/more").mkdir(parents=True)
    for number in range(8):
        draw_photo(Path("photos/more" if number > 5 else "photos") / f"{number}.png", number)
    return tmp_path


def draw_photo(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 255, (4, 4, 3), np.uint8)
    Image.fromarray(pixels).resize((64 + seed, 48)).save(path)


def built(codes: str = "int8") -> Index:
    index = Index.create("index", "model", codes=codes)  # type: ignore[arg-type]
    assert index.update("photos").added == 8
    return index


@pytest.mark.parametrize(("codes", "tolerance"), [("int8", 2e-2), ("float16", 2e-3)])
def test_an_index_scores_as_the_model_does(codes: str, tolerance: float, place: Path) -> None:
    with built(codes) as index:
        found = Searcher(index).search(Query(TEXT, top=8, exact=True))
    wanted = load("model", kind=PictureMatcher).score([Path("photos") / hit.id for hit in found.hits], TEXT)[:, 0]
    np.testing.assert_allclose([hit.score for hit in found.hits], wanted, atol=tolerance)
    assert found.total == 8
    assert found.exact
    assert {word.word for word in found.hits[0].words} >= {"red", "cube"}
    assert found.hits[0].metadata["width"] >= 64


def test_indexing_again_touches_what_changed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with built() as index:
        version = index.table.version
        assert index.update("photos").unchanged == 8
        assert index.table.version == version  # nothing was written
        draw_photo(Path("photos/1.png"), 20)
        os.utime("photos/2.png", (1, 1))  # another time, the same content
        Path("photos/3.png").rename("photos/moved.png")
        Path("photos/4.png").unlink()
        draw_photo(Path("photos/new.png"), 30)
        Path("photos/broken.png").write_bytes(b"no picture")
        read = []
        monkeypatch.setattr(
            "saccade.search.reading._row",
            lambda file, one, _of=sys.modules["saccade.search.reading"]._row: read.append(file.id) or _of(file, one),
        )
        done = index.update("photos")
        assert (done.added, done.updated, done.deleted, done.unchanged) == (2, 1, 2, 5)
        assert [one.id for one in done.unreadable] == ["broken.png"]
        assert sorted(read) == ["1.png", "new.png"]  # the renamed one kept its codes
        assert index.snapshot().ids == sorted(
            ["0.png", "1.png", "2.png", "5.png", "more/6.png", "more/7.png", "moved.png", "new.png"]
        )
        assert index.rows(["2.png"], ["mtime"])[0]["mtime"] == 10**9
        assert index.check() == []


def test_rows_come_in_the_order_asked_for(place: Path) -> None:
    with built() as index:
        asked = ["more/7.png", "0.png", "5.png", "0.png"]
        assert [row["id"] for row in index.rows(asked, ["id"])] == asked
        assert Image.open(BytesIO(index.thumbnail("5.png"))).size == (69, 48)
        assert index.facets("folder") == {"": 6, "more": 2}
        with pytest.raises(SaccadeError, match="is not in the index"):
            index.rows(["9.png"], ["id"])
        with pytest.raises(SaccadeError, match='"widht"; did you mean "width"'):
            index.rows(["0.png"], ["widht"])


def test_a_reader_keeps_its_version_beside_a_writer(place: Path) -> None:
    with built() as index:
        reader = Index.open("index")
        searcher = Searcher(reader)
        before = [hit.id for hit in searcher.search(Query(TEXT, top=8)).hits]
        assert index.delete([before[0], "nowhere.png"]) == 1
        index.compact()
        assert [hit.id for hit in searcher.search(Query(TEXT, top=8, exact=True)).hits] == before
        assert reader.refresh()
        assert [hit.id for hit in searcher.search(Query(TEXT, top=8)).hits] == before[1:]


def test_a_second_writer_is_refused_or_waits(place: Path) -> None:
    def refuse() -> None:
        raise SaccadeError("another process is writing it")

    with built() as index:
        with pytest.raises(SaccadeError, match="another process is writing it"):
            Index.open("index", write=True, waiting=refuse)
        script = (
            "from saccade.search import Index\n"
            "with Index.open('index', write=True, waiting=lambda: print('waits', flush=True)) as index:\n"
            "    print(index.delete(['0.png']), len(index), flush=True)\n"
        )
        other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "waits\n"
        index.delete(["1.png"])
        assert len(index) == 7
    assert other.communicate()[0] == "1 6\n"
    with pytest.raises(SaccadeError, match="was opened to be read"):
        Index.open("index").delete(["2.png"])


def test_codes_that_are_no_numbers_are_refused(place: Path) -> None:
    with built() as index:
        kept = index.settings.kept
        codes, boxes = torch.zeros(2, kept.dim), np.tile(np.array([0, 0, 1, 1], np.float32), (2, 1))
        codes[1, 3] = torch.nan
        with pytest.raises(SaccadeError, match='"x": its codes hold NaN'):
            packed(codes, boxes, torch.zeros(kept.vector_dim), kept, "x")
        with pytest.raises(SaccadeError, match="codes hold NaN"):
            packed(torch.zeros(2, kept.dim), boxes, torch.full((kept.vector_dim,), torch.inf), kept, "x")
        index.put(
            [{"id": "zero"}], [packed(torch.zeros(2, kept.dim), boxes, torch.zeros(kept.vector_dim), kept, "zero")]
        )
        assert all(np.isfinite(hit.score) for hit in Searcher(index).search(Query(TEXT)).hits)


def test_flipped_bytes_are_noticed_and_left_out(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with built() as index:
        wanted = index.rows(["3.png"], ["codes"])[0]["codes"]
    hits = 0
    for file in Path("index/pictures.lance/data").iterdir():
        held = bytearray(file.read_bytes())
        if (at := held.find(wanted)) >= 0:
            held[at + 5] ^= 0x40
            file.write_bytes(held)
            hits += 1
    assert hits == 1
    with Index.open("index") as index:
        assert index.check() == ['"3.png": its codes are damaged: the checksum differs']
        searcher = Searcher(index)
        found = searcher.search(Query(TEXT, top=8, exact=True))
        assert len(found.hits) == 7
        assert "3.png" not in {hit.id for hit in found.hits}
        assert 'the row of "3.png" is damaged' in capsys.readouterr().err
        with pytest.raises(SaccadeError, match="damaged"):
            searcher.explain("3.png", TEXT)


def test_what_a_killed_writer_left_is_removed(place: Path) -> None:
    built().close()
    stray = Path("index/pictures.lance/data/0000.lance")
    stray.write_bytes(b"left by a kill")
    Path("index", WRITING).write_text("killed")
    with Index.open("index", write=True) as index:
        assert index.table.killed
        assert not stray.exists()
        assert index.check() == []
    assert not Path("index", WRITING).exists()


def test_another_users_index_opens_nothing_outside_itself(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built().close()
    monkeypatch.setattr(Index, "is_own", property(lambda _: False))
    with Index.open("index") as index:
        with pytest.raises(SaccadeError, match="another user's and names the model"):
            Searcher(index)
        searcher = Searcher(index, "model")
        monkeypatch.setattr("saccade.search.searcher.as_array", lambda _: pytest.fail("a file was opened"))
        assert searcher.picture("0.png").shape == (48, 64, 3)  # the thumbnail
    Path("index/pictures.lance/link").symlink_to("/etc")
    with pytest.raises(SaccadeError, match="is a link"):
        Index.open("index")


def test_a_model_that_did_not_make_the_codes_is_refused(place: Path, vocabulary: Vocabulary) -> None:
    built().close()
    torch.manual_seed(1)
    model = Scan(ScanConfig(trainable_backbone("grid:world@16").dim, 8, 16), vocabulary)
    model.backbone = trainable_backbone("grid:world@16")
    model.save_pretrained("other")
    with Index.open("index") as index, pytest.raises(SaccadeError, match="other is not the model"):
        Searcher(index, "other")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: Path("index/index.json").unlink(), "is no index"),
        (lambda: Path("index/index.json").write_text("[]"), "is not of an index"),
        (lambda: Path("index/index.json").write_text('{"format": "saccade-index", "version": 9}'), "format version 9"),
        (lambda: shutil.rmtree("index/pictures.lance/_versions"), "cannot be read as an index"),
        (lambda: shutil.rmtree("index/pictures.lance"), "cannot be read as an index"),
    ],
)
def test_a_broken_folder_gets_one_sentence(change, said: str, place: Path) -> None:  # type: ignore[no-untyped-def]
    built().close()
    change()
    with pytest.raises(SaccadeError, match=said):
        Index.open("index")


def test_a_feature_store_is_indexed_without_pictures(vocabulary: Vocabulary, tmp_path: Path) -> None:
    torch.manual_seed(0)
    Scan(ScanConfig(6, 8, 16), vocabulary, "somewhere").save_pretrained(tmp_path / "model")
    draw = np.random.default_rng(0)
    with StoreWriter(tmp_path / "store", 6, extractor="somewhere") as writer:
        for n in range(5):
            boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (3 + n, 1))
            writer.append(f"{n}", draw.normal(size=(3 + n, 6)).astype(np.float32), boxes, 10, 10)
    with Index.create(tmp_path / "index", str(tmp_path / "model")) as index:
        assert index.update(tmp_path / "store").added == 5
        assert index.update(tmp_path / "store").unchanged == 5
        searcher = Searcher(index)
        found = searcher.search(Query(TEXT, top=3))
        assert len(found.hits) == 3
        with pytest.raises(SaccadeError, match="has no thumbnail"):
            searcher.explain(found.hits[0].id, TEXT)


def test_ten_kills_lose_nothing(tmp_path: Path) -> None:
    """The small form of `scripts/kill_index.py`."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
    try:
        from kill_index import run_kills
    finally:
        sys.path.pop(0)
    report = run_kills(tmp_path, kills=10, seed=0)
    assert report.kills == 10
    assert report.lost == 0
    assert report.problems == 0
    assert report.bytes_live <= 1.5 * report.bytes_fresh + 50_000
