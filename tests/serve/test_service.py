"""What the service answers: searches, explanations, tasks, facts about itself."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from served import EASY

from saccade.search.index import Index
from saccade.search.query import Query
from saccade.search.searcher import Searcher
from saccade.serve.app import make_app
from saccade.serve.config import ServeConfig
from saccade.serve.offer import Offer, all_uses, open_indices
from saccade.tasks import find_task, task_names

Service = Callable[..., TestClient]
TEXT = "a red cube left of a blue ball"


def test_a_search_says_what_the_searcher_says(service: Service, shelf: Path) -> None:
    found = service().get("/search", params={"text": TEXT, "top": 5}).json()
    with Index.open(shelf / "toys") as index:
        wanted = Searcher(index).search(Query(TEXT, top=5))
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in wanted.hits]
    assert [hit["score"] for hit in found["hits"]] == pytest.approx([hit.score for hit in wanted.hits], abs=1e-5)
    assert found["hits"][0]["probability"] == pytest.approx(wanted.hits[0].probability, abs=1e-5)
    assert (found["index"], found["total"], found["model"]) == ("toys", 26, "scan")
    assert [word["word"] for word in found["hits"][0]["words"]][:3] == ["a", "red", "cube"]


def test_a_picture_that_is_added_meanwhile_is_found(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.serve.offer.REFRESH_SECONDS", 0.0)
    (tmp_path / "photos").mkdir()
    shutil.copy(shelf / "photos" / "01.png", tmp_path / "photos")
    with Index.create(tmp_path / "index", str(shelf / "scan")) as made:
        made.update(tmp_path / "photos")
    offer = Offer(open_indices([tmp_path / "index"], "cpu", EASY, lambda name, size: None), [])
    client = TestClient(make_app(offer, ServeConfig(limits=EASY)), base_url="http://localhost")
    assert client.get("/search", params={"text": TEXT}).json()["total"] == 1
    shutil.copy(shelf / "photos" / "02.png", tmp_path / "photos")
    with Index.open(tmp_path / "index", write=True) as opened:
        opened.update(tmp_path / "photos")
    assert client.get("/search", params={"text": TEXT}).json()["total"] == 2
    assert client.get("/thumbnails/index/02.png").status_code == 200
    offer.close()


def test_no_path_of_the_machine_is_told(service: Service, shelf: Path) -> None:
    client = service()
    for address in (f"/search?text={TEXT}", "/models", "/facets", f"/explain?id=01.png&text={TEXT}"):
        answer = client.get(address)
        assert answer.status_code == 200, answer.text
        assert str(shelf) not in answer.text


def test_one_index_may_be_searched_beside_another(service: Service) -> None:
    client = service()
    one, other = (client.get("/search", params={"text": TEXT, "index": name}).json() for name in ("toys", "toys-other"))
    assert one["fits"]
    assert not other["fits"]
    wrong = client.get("/search", params={"text": TEXT, "index": "tyos"})
    assert (wrong.status_code, wrong.json()["error"][:40]) == (400, 'there is no index "tyos"; did you mean "')


def test_a_condition_and_what_must_not_be_there_are_passed_on(service: Service) -> None:
    client = service()
    inside = client.get("/search", params={"text": "a cube", "where": "folder = 'more'", "top": 50}).json()
    assert {hit["metadata"]["folder"] for hit in inside["hits"]} == {"more"}
    assert len(inside["hits"]) == 8
    without = client.get("/search", params={"text": "a cube", "minus": ["a ball"], "plus": ["a cone"]})
    assert without.status_code == 200
    assert client.get("/search", params={"text": "a cube", "where": "nonsense ="}).status_code == 400


def test_a_picture_is_found_by_itself(service: Service, shelf: Path) -> None:
    client = service()
    by_id = client.get("/search", params={"like": "04.png"}).json()
    upload = {"file": ("whatever.png", (shelf / "photos" / "04.png").read_bytes(), "image/png")}
    by_file = client.post("/search", files=upload, data={"top": "3"}).json()
    without = client.post("/search", files=upload, data={"minus": ["a cube", "a ball"], "text": "a cone"})
    assert without.status_code == 200
    part = client.get("/search", params={"like": "04.png", "region": "0.2,0.2,0.8,0.8"})
    assert by_id["hits"][0]["id"] == by_file["hits"][0]["id"] == "04.png"
    assert part.status_code == 200
    assert client.get("/search", params={"like": "04.png", "region": "0.8,0.2,0.2,0.8"}).status_code == 400


def test_an_explanation_has_a_weight_for_every_word_and_region(service: Service) -> None:
    found = service().get("/explain", params={"id": "04.png", "text": "a red zebra"}).json()
    assert [word["text"] for word in found["words"]] == ["a", "red", "zebra"]
    assert [word["known"] for word in found["words"]] == [True, True, False]
    assert np.array(found["weights"]).shape == (3, len(found["boxes"]))
    assert found["words"][1]["heat"].startswith("data:image/png;base64,")
    assert 0 <= found["probability"] <= 1


def test_a_video_is_explained_on_its_frames(films: Path) -> None:
    offer = Offer(open_indices([films], "cpu", EASY, lambda name, size: None), [])
    client = TestClient(make_app(offer, ServeConfig(limits=EASY)), base_url="http://localhost")
    found = client.get("/explain", params={"id": "ball.mp4", "text": "the red ball and a cube"}).json()
    assert found["picture"].startswith("data:image/jpeg;base64,")
    assert [word["text"] for word in found["words"]] == ["red", "ball", "cube"]
    assert len(found["weights"][0]) == len(found["boxes"]) > 2
    assert all(word["heat"] for word in found["words"])
    video = films.parent / "films" / "ball.mp4"
    video.write_bytes(bytes(video.stat().st_size))
    changed = client.get("/explain", params={"id": "ball.mp4", "text": "the red ball"})
    assert (changed.status_code, "since it was indexed" in changed.json()["error"]) == (410, True)
    offer.close()


def test_regions_have_the_names_that_the_extractor_has(service: Service, shelf: Path) -> None:
    found = service().get("/regions", params={"id": "04.png"}).json()
    with Index.open(shelf / "toys") as index:
        (row,) = index.rows(["04.png"], ["boxes"])
        boxes = np.frombuffer(row["boxes"], np.float32).reshape(-1, 4)
        named = Searcher(index).matcher.extractor.describe([shelf / "photos" / "04.png"], [boxes])[0]
    assert np.allclose(found["boxes"], boxes, atol=1e-4)
    assert found["labels"] == [region.text for region in named]
    assert service().get("/regions", params={"id": "nobody"}).status_code == 404


def test_pictures_come_by_id_alone(service: Service) -> None:
    client = service()
    for kind in ("thumbnails", "pictures"):
        answer = client.get(f"/{kind}/toys/more/00.png")
        assert answer.headers["content-type"] == "image/jpeg"
        assert Image.open(io.BytesIO(answer.content)).size[0] > 32
        assert client.get(f"/{kind}/toys/nobody.png").status_code == 404


def test_copies_are_told_from_similar_pictures(service: Service) -> None:
    asked = {"index": "toys", "ids": ["01.png", "same.png", "02.png", "again.jpg", "04.png", "05.png", "gone.png"]}
    found = service().post("/copies", json=asked).json()
    assert sorted(sorted(group) for group in found["groups"]) == [["01.png", "same.png"], ["02.png", "again.jpg"]]
    assert "64-bit" in found["by"]


def test_facets_count_what_can_be_chosen(service: Service) -> None:
    columns = service().get("/facets").json()["columns"]
    assert columns["folder"]["more"] == 8
    assert "path" not in columns
    assert columns["rating"].keys() == {"0", "1"}
    assert columns["labels"]
    kinds = service().get("/models").json()["indices"][0]["columns"]
    assert {name: kinds[name] for name in ("folder", "rating", "labels", "taken")} == {
        "folder": "text",
        "rating": "number",
        "labels": "list",
        "taken": "time",
    }


def test_every_use_of_every_task_has_an_endpoint(service: Service) -> None:
    """Whatever a predictor says it does, the service does: it knows no task by name."""
    schema = service().get("/openapi.json").json()
    declared = {use.verb for name in task_names() for use in find_task(name).predictor.uses}
    assert {f"/{verb}" for verb in declared} <= schema["paths"].keys()
    assert declared == all_uses().keys()
    assert declared >= {"caption", "ask", "ground", "refer", "moment", "score", "detect", "densecap", "relations"}


def test_a_task_is_done_by_the_models_that_can(service: Service, png: bytes) -> None:
    client = service()
    said = client.post("/caption", files={"file": png}, data={"top": "2"}).json()
    assert said["model"] == "captioner"
    assert len(said["lines"]) == 2
    assert len(said["explanation"]["words"]) > 3
    assert said["picture"].startswith("data:image/jpeg")
    grounded = client.post("/ground", files={"file": png}, data={"text": "a red cube and a blue ball"}).json()
    assert [line["text"] for line in grounded["lines"]] == ["a red cube", "a blue ball"]
    assert all(len(line["boxes"][0]) == 4 for line in grounded["lines"])
    scored = client.post("/score", files={"file": png}, data={"text": "a red cube"}).json()
    assert 0 <= scored["lines"][0]["probability"] <= 1


@pytest.mark.parametrize(
    ("verb", "files", "data", "sentence"),
    [
        ("caption", False, {}, "caption needs a picture"),
        ("score", True, {}, "score needs a text: the sentence"),
        ("score", True, {"text": "zzz qqq"}, "zzz"),
        ("refer", True, {"text": "a cube"}, "no model of this service can refer"),
        ("caption", True, {"model": "scan"}, 'no model that can caption is called "scan"'),
    ],
)
def test_a_task_that_cannot_be_done_says_why(
    service: Service, png: bytes, verb: str, files: bool, data: dict[str, str], sentence: str
) -> None:
    answer = service().post(f"/{verb}", files={"file": png} if files else None, data=data)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]


def test_models_lists_what_is_offered(service: Service) -> None:
    found = service().get("/models").json()
    assert [index["name"] for index in found["indices"]] == ["toys", "toys-other"]
    assert found["indices"][0]["line"] == pytest.approx(0.1)
    assert {task["verb"]: task["models"] for task in found["tasks"]} == {
        "score": ["scan"],
        "ground": ["scan"],
        "moment": ["scan"],
        "caption": ["captioner"],
    }


def test_metrics_count_requests_batches_and_refusals(service: Service) -> None:
    client = service()
    client.get("/search", params={"text": "a cube"})
    client.get("/nowhere")
    text = client.get("/metrics").text
    assert 'saccade_requests_total{method="GET",route="/search",status="200"} 1.0' in text
    assert 'saccade_batch_size_count{model="toys"} 1.0' in text
    assert 'route="other",status="404"' in text
    assert client.get("/healthz").json() == {"status": "ok", "indices": 2, "models": 2}


def test_a_request_is_one_line_of_json_without_what_was_asked(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    import logging

    from saccade.serve.run import log_as_json

    log_as_json()
    service().get("/search", params={"text": "a secret cube"})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    logging.getLogger("saccade.serve").handlers = []
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["path"], line["status"], line["method"]) == ("/search", 200, "GET")
    assert "secret" not in str(lines)


def test_the_page_brings_all_it_needs_and_forbids_the_rest(service: Service) -> None:
    client = service()
    page = client.get("/")
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    for part in ("app.js", "look.js", "task.js", "style.css"):
        text = client.get(f"/page/{part}").text
        assert len(text) > 1000
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert "innerHTML" not in text
    assert client.get("/page/../app.py").status_code == 404
