"""Parts of an index searched by many processes: the answer of one, whatever dies. Ray is started once for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.scan import Scan, ScanConfig
from saccade.search import Found, Index, Query, Searcher
from saccade.search.sharded import RayEncoder, RaySearcher, ShardSearcher, bounds_of, merged
from saccade.world import WorldConfig, make_world

COUNT, SHARDS = 22, 4
TEXTS = ("a red cube", "a small blue ball on the left")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained SCAN of the world, pictures, and an index of them."""
    place = tmp_path_factory.mktemp("sharded")
    split = make_world(WorldConfig(pictures=COUNT, hard_groups=0, novel=0), place / "world", workers=1).split("train")
    (place / "photos").mkdir()
    for n in range(COUNT):
        Image.fromarray(split.image(n % len(split))).rotate(n).save(place / "photos" / f"{n:02d}.png")
    torch.manual_seed(0)
    words = Vocabulary.build(TEXTS * 2, 1)
    Scan(ScanConfig(256, 8, 16), words, "world").save_pretrained(place / "run" / "best")
    with Index.create(place / "index", str(place / "run")) as index:
        index.update(place / "photos")
    return place


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    import ray

    ray.init(
        num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    yield ray
    ray.shutdown()


def queries() -> list[Query]:
    return [Query(TEXTS[0], top=5), Query(TEXTS[1], minus=("a cube",), where="width > 0", top=30)]


def one_process(folder: Path) -> list[Found]:
    with Index.open(folder / "index") as index:
        return Searcher(index).search_many([Query(**{**vars(query), "exact": True}) for query in queries()])


def same(found: Sequence[Found], expected: Sequence[Found]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose([hit.score for hit in one.hits], [hit.score for hit in other.hits], atol=1e-5)
        assert {hit.id for hit in one.hits} == {hit.id for hit in other.hits}
        assert [word.word for word in one.hits[0].words] == [word.word for word in other.hits[0].words]
        assert one.total == other.total
        assert one.exact


def test_parts_together_are_the_index(folder: Path) -> None:
    assert [bounds_of(n, 4, 22) for n in range(4)] == [(0, 5), (5, 11), (11, 16), (16, 22)]
    asked = [Query(**{**vars(query), "exact": True}) for query in queries()]
    with Index.open(folder / "index") as index:
        parts = [ShardSearcher(index, None, "cpu", n, SHARDS).search_many(asked) for n in range(SHARDS)]
    assert [part[0].total for part in parts] == [5, 6, 5, 6]
    same([merged(own, query, (), 0.0) for query, *own in zip(asked, *parts, strict=True)], one_process(folder))


class Killing(RaySearcher):
    """One of its actors is stopped before it is asked, and killed while the question waits."""

    victim: int | None = None
    always = False

    def _ask(self, shard: int, queries: Sequence[Query], version: int) -> tuple[Any, Any]:
        if shard != self.victim:
            return super()._ask(shard, queries, version)
        pid = self.ray.get(self.actors[shard].pid.remote())
        os.kill(pid, signal.SIGSTOP)
        asked = super()._ask(shard, queries, version)
        os.kill(pid, signal.SIGKILL)
        self.victim = self.victim if self.always else None
        return asked


@pytest.mark.usefixtures("ray")
def test_an_answer_is_complete_after_a_kill_or_says_what_is_missing(folder: Path) -> None:
    """Two parts, since each is a process that imports PyTorch; `benchmarks/search_engines.py` has four."""
    with Killing(folder / "index", shards=2) as searcher:
        with pytest.raises(SaccadeError, match="no column"):  # a mistake is told, not tried again
            searcher.search(Query("a cube", where="colour = 'red'"))
        searcher.victim = 1
        found = searcher.search_many(queries())
        same(found, one_process(folder))
        assert not any(one.missing for one in found)
        assert searcher.victim is None
        searcher.victim, searcher.always, searcher.tries = 0, True, 1
        for one, whole in zip(searcher.search_many(queries()), one_process(folder), strict=True):
            assert one.missing == ("part 1 of 2 (pictures 1 to 11): its process died, 1 times",)
            assert one.total == COUNT - 11
            assert {hit.id for hit in one.hits}.isdisjoint({f"{n:02d}.png" for n in range(11)})
            assert one.hits[0].score <= whole.hits[0].score + 1e-6


class KillingEncoder(RayEncoder):
    """Its first actor dies over its first files, as often as `kills` says."""

    kills = 1

    def _ask(self, number: int, part: Any, videos: bool) -> tuple[Any, Any]:
        if number or not self.kills:
            return super()._ask(number, part, videos)
        self.kills -= 1
        pid = self.ray.get(self.actors[number].pid.remote())
        os.kill(pid, signal.SIGSTOP)
        asked = super()._ask(number, part, videos)
        os.kill(pid, signal.SIGKILL)
        return asked


@pytest.mark.usefixtures("ray")
def test_encoding_elsewhere_gives_the_same_index(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.search.sharded.PART", 16)
    (tmp_path / "photos").mkdir()
    for path in sorted((folder / "photos").iterdir()):
        (tmp_path / "photos" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "photos" / "07.png").write_bytes(b"no picture")
    with Index.create(tmp_path / "index", str(folder / "run")) as index:
        encoder = KillingEncoder(index, workers=1)
        done = index.update(tmp_path / "photos", encoder=encoder)
        assert done.added == COUNT - 1
        assert [one.id for one in done.unreadable] == ["07.png"]
        with Index.open(folder / "index") as other:
            ids = [f"{n:02d}.png" for n in range(COUNT) if n != 7]
            columns = ["id", "codes", "scale", "boxes", "width", "height"]
            for own, known in zip(index.rows(ids, columns), other.rows(ids, columns), strict=True):
                codes = [np.frombuffer(row["codes"], np.int8).astype(int) for row in (own, known)]
                assert np.abs(codes[0] - codes[1]).max() <= 1  # other neighbours in a batch round otherwise
                boxes = [np.frombuffer(row["boxes"], np.float32) for row in (own, known)]
                np.testing.assert_allclose(*boxes, atol=1e-5)
        encoder.tries, encoder.kills = 1, 1
        Image.new("RGB", (30, 30)).save(tmp_path / "another.png")
        lost = index.update(tmp_path / "another.png", encoder=encoder)
        encoder.close()
    assert lost.added == 0
    assert lost.unreadable[0].reason == "its encoder gave nothing: its process died, 1 times"


def test_what_makes_no_sense_is_refused(folder: Path) -> None:
    with pytest.raises(SaccadeError, match="above zero"):
        RaySearcher(folder / "index", shards=0)
