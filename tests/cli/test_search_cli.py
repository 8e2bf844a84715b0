"""`saccade index` and `saccade search`, as a user gives them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.language import Vocabulary
from saccade.models import FILES, Scan, ScanConfig
from saccade.vision.extractors import trainable_backbone

Saccade = Callable[..., tuple[int, str, str]]
TEXT = "a red cube left of a blue ball"
UNNEEDED = """
transformers tokenizers huggingface_hub matplotlib scipy pandas sympy networkx lightning tensorboard
fastapi uvicorn ray av
torch._dynamo torch._inductor torch.onnx lance_namespace_urllib3_client.api
saccade.world saccade.interop saccade.training saccade.serve saccade.lab"""  # each takes its time to import


@pytest.fixture
def place(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saccade: Saccade) -> Path:
    """Five photos, a table about them, and their index."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    torch.manual_seed(0)
    model = Scan(ScanConfig(trainable_backbone("grid:world@16").dim, 8, 16), vocabulary)
    model.backbone = trainable_backbone("grid:world@16")
    model.save_pretrained("model")
    Path("photos").mkdir()
    for number in range(5):
        pixels = np.random.default_rng(number).integers(0, 255, (4, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((64, 48)).save(f"photos/{number}.png")
        os.utime(f"photos/{number}.png", (1_600_000_000, 1_600_000_000))
    Path("about.csv").write_text(
        "image,rating,place,labels\n" + "".join(f"{n}.png,{n},here,x;n{n}\n" for n in range(5))
    )
    code, out, err = saccade("index", "photos", "-o", "index", "--model", "model", "--metadata", "about.csv")
    assert (code, out.strip()) == (0, "index: 5 in all; 5 added, 0 changed, 0 gone, 0 as before"), err
    return tmp_path


def answer(saccade: Saccade, *words: object) -> dict:  # type: ignore[type-arg]
    code, out, err = saccade("search", "index", *words, "--json")
    assert code == 0, err
    return json.loads(out)  # type: ignore[no-any-return]


def ids(found: dict) -> list[str]:  # type: ignore[type-arg]
    return [hit["id"] for hit in found["hits"]]


def test_a_sentence_finds_pictures_and_says_why(place: Path, saccade: Saccade) -> None:
    found = answer(saccade, TEXT)
    assert len(found["hits"]) == found["total"] == 5
    assert found["hits"][0]["metadata"]["rating"] == int(found["hits"][0]["id"][0])
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    code, out, _ = saccade("search", "index", TEXT, "--top", 2, "--explain", "why.html")
    assert code == 0
    assert found["hits"][0]["id"] in out
    assert "2 of 5" in out
    assert len(answer(saccade, TEXT, "--top", 0)["hits"]) == 5
    page = Path("why.html").read_text()
    assert found["hits"][0]["id"] in page
    assert "default-src 'none'" in page  # nothing is fetched


def test_a_search_imports_nothing_that_it_does_not_need(place: Path) -> None:
    script = "import sys; from saccade.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    words = [sys.executable, "-c", script, "search", "index", TEXT]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "5 of 5" in done.stdout
    imported = {*done.stderr.split()}
    assert {"torch", "lancedb", "saccade.models.scan"} <= imported
    assert not imported & {*UNNEEDED.split()}
    assert not imported & {f"saccade.models.{file}" for file in FILES if file != "scan"}


def test_columns_of_ones_own_filter(place: Path, saccade: Saccade) -> None:
    kept = {hit["id"] for hit in answer(saccade, TEXT, "--where", "rating >= 3 AND year = 2020")["hits"]}
    assert kept == {"3.png", "4.png"}
    assert {h["id"] for h in answer(saccade, TEXT, "--where", "array_has(labels, 'n1')")["hits"]} == {"1.png"}
    code, out, _ = saccade("search", "index", TEXT, "--where", "rating > 100")
    assert (code, "nothing was found" in out) == (0, True)
    code, _, err = saccade("search", "index", TEXT, "--where", "raiting > 1")
    assert (code, err.startswith('error: --where: there is no column "raiting"; did you mean "rating"?')) == (2, True)


def test_pictures_files_of_sentences_and_terms(place: Path, saccade: Saccade) -> None:
    assert answer(saccade, "--like", "photos/2.png")["hits"][0]["id"] == "2.png"
    assert answer(saccade, "--like", "2.png", "--region", "0,0,0.5,1", "--exact")["hits"][0]["id"] == "2.png"
    Path("lines.txt").write_text(f"{TEXT}\nthe green ball -cube\n\n")
    code, out, _ = saccade("search", "index", "-f", "lines.txt", "--json")
    assert code == 0
    both = json.loads(out)
    assert [one["query"] for one in both] == [TEXT, "the green ball cube"]
    assert ids(both[0]) == ids(answer(saccade, TEXT))
    assert ids(both[1]) == ids(answer(saccade, "the green ball", "--not", "cube"))


def test_an_index_is_looked_after(place: Path, saccade: Saccade) -> None:
    assert json.loads(saccade("index", "stats", "index", "--json")[1])["pictures"] == 5
    assert saccade("index", "check", "index")[1].strip() == "index: 5 rows, all as they were written"
    file = next(Path("index/pictures.lance/data").iterdir())
    held = file.read_bytes()
    file.write_bytes(held[: len(held) // 2] + held[len(held) // 2 + 8 :])
    code, out, _ = saccade("index", "check", "index")
    assert code == 1
    assert "index" in out
    file.write_bytes(held)
    assert saccade("index", "delete", "index", "1.png")[1].strip() == "index: 1 of 1 removed"
    assert saccade("index", "compact", "index", "--grace", 0)[0] == 0
    code, out, _ = saccade("index", "eval", "index", "--at", 2, "--count", 3, "--json")
    assert code == 0
    assert json.loads(out)["pictures"] == 4
    code, out, _ = saccade("index", "photos", "-o", "index")
    assert out.strip() == "index: 5 in all; 1 added, 0 changed, 0 gone, 4 as before"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("search", "nowhere", TEXT), "is no index"),
        (("search", "index"), "needs a sentence or a picture"),
        (("search", "index", "zebra"), "knows none of the words"),
        (("search", "index", TEXT, "--region", "1,2,3"), "x1,y1,x2,y2 in 0..1 was expected"),
        (("search", "index", TEXT, "--where", "rating = 'x'"), "'x' is compared with a column of numbers\n"),
        (
            ("search", "index", TEXT, "--where", "labels = 'x'"),
            "column of lists: array_has(labels, 'dog') looks into one",
        ),
        (("search", "index", TEXT, "--where", "taken > 'x'"), "column of times: date '2024-05-01' is one"),
        (("search", "index", TEXT, "--where", "rating >"), "cannot be read: Expected: an expression, found: EOF\n"),
        (("search", "index", "--like", "gone.jpg"), "gone.jpg does not exist"),
        (("search", "index", TEXT, "--explain", "why.png"), "must end in .html"),
        (("index", "nowhere", "-o", "index"), "nowhere does not exist"),
        (("index", "photos", "-o", "photos", "--model", "model"), "photos is in the way"),
        (("index", "photos", "-o", "index", "--model", "scan-small"), "was made with"),
        (("index", "photos", "-o", "other", "--model", "modle"), "is no model folder"),
        (("index", "stats", "photos"), "is no index"),
    ],
)
def test_a_mistake_gets_one_sentence_and_leaves_nothing(
    words: tuple[str, ...], said: str, place: Path, saccade: Saccade
) -> None:
    code, _, err = saccade(*words)
    assert code == 2
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
    assert not Path("other").exists()
    assert sorted(p.name for p in Path("photos").iterdir()) == [f"{n}.png" for n in range(5)]
