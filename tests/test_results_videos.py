"""The tables of videos: sentences made false, roles that are read, and what a page says of its figures."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from saccade.core.files import write_json
from saccade.data import CaptionedImages
from saccade.language.roles import shared_roles


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("results_videos")


def test_roles_are_read_as_a_person_reads_them(script: ModuleType) -> None:
    """All of the world's captions; most of those that were written for it, whose figures stand in the docs."""
    rows = script.measure_roles(pictures=100)
    assert rows["the world's captions"]["sentences"] > 100
    assert rows["the world's captions"]["exact"] == 100
    for title, least in (("captions that the rules were written with", 95), ("captions set apart", 85)):
        assert rows[title]["precision"] >= least
        assert rows[title]["recall"] >= least


def test_a_sentence_is_made_false_by_its_roles(script: ModuleType) -> None:
    (graph,) = shared_roles().read(["a dog is chasing a black cat in a garden"])
    assert script.exchanged(graph) == "a black cat is chasing a dog in a garden"
    for whole in ("a dog is running", "a ball is thrown by a man"):
        (graph,) = shared_roles().read([whole])
        assert script.exchanged(graph) is None

    class Videos:
        dim = 1

        def __len__(self) -> int:
            return 2

    texts = ("a dog is chasing a cat", "a man is cutting an onion")
    data = CaptionedImages("videos", "dev", Videos(), texts, np.arange(2))  # type: ignore[arg-type]
    found = {(one.image, one.kind): one.false for one in script.of_sentences(data)}
    assert found[0, "roles"] == "a cat is chasing a dog"
    assert found[0, "action"] == "a dog is cutting a cat"
    assert sorted(found[1, "shuffled"].split()) == sorted(texts[1].split())
    assert all(one.true != one.false for one in script.of_world(100, 0, "test"))


def test_a_page_says_what_was_measured(script: ModuleType, tmp_path: Path) -> None:
    arguments = argparse.Namespace(
        runs=tmp_path, data="msvd", split="dev", seeds=2, device="cpu", out=tmp_path, settings=["epochs=4"],
        root=Path("x/msvd"),
    )  # fmt: skip
    (tmp_path / "msvd").mkdir()
    recalls = dict.fromkeys(script.FIGURES, 10.0)
    facts = {"queries": {"i2t": 3, "t2i": 9}, "captions_each": [2, 4], "ties": "count against the model"}
    for name, score in (("vse", 50.0), ("hgr", 81.25)):
        own = {"roles": score, "roles_count": 7.0}
        kept = {"results": {"chance": recalls, name: {**recalls, "rsum": 2 * score}}, "protocol": facts, "choices": own}
        write_json(script.figures_of(name, 0, arguments), kept)
        write_json(script.run_of(name, 0, arguments) / "environment.json", {"device": "a toy"})
    script.report(arguments)
    page = (tmp_path / "videos-msvd.md").read_text()
    for words in ("3 videos", "9 sentences (2 to 4 a video)", "| 162.5 | 81.2 | 1 |", "exchanged (7)", "on a toy",
                  "msvd --root data/msvd --seeds 2 --device cpu --settings epochs=4"):  # fmt: skip
        assert words in page
