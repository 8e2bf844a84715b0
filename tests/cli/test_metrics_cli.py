"""`saccade metrics`: scores of files, and taus that are known beforehand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from saccade.cli import app
from saccade.core.errors import SaccadeError

REFERENCES = {
    "images": [{"id": n, "file_name": f"{n}.jpg"} for n in (1, 2, 3)],
    "annotations": [
        {"id": n, "image_id": n % 3 + 1, "caption": text}
        for n, text in enumerate(["a man rides a horse", "a dog runs", "two cats sleep", "a man on a horse"])
    ],
}
RESULTS = [{"image_id": 1, "caption": "a man rides a horse"}, {"image_id": 2, "caption": "A bird flies."}]


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["metrics", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    for name, content in (("results.json", RESULTS), ("captions.json", REFERENCES)):
        (tmp_path / name).write_text(json.dumps(content))
    return str(tmp_path / "results.json"), str(tmp_path / "captions.json")


def test_scores_are_printed_as_a_table(files: tuple[str, str]) -> None:
    printed = run("score", *files, "--meteor", "none")
    for word in ("2 captions", "bleu4", "cider_d", "scene_graph_f", "distinct_1", "exact, stem", "pip install"):
        assert word in printed


def test_scores_are_printed_as_json_and_written_for_each(files: tuple[str, str], tmp_path: Path) -> None:
    each = tmp_path / "each.jsonl"
    printed = run("score", *files, "--meteor", "none", "--json", "--each", str(each), "--train", files[1])
    values = json.loads(printed[printed.index("{") :])
    lines = [json.loads(line) for line in each.read_text().splitlines()]
    assert values["pictures"] == 2
    assert values["meteor_stages"] == ["exact", "stem"]
    assert values["language"]["novel"] == 0.5
    assert [line["image_id"] for line in lines] == ["1", "2"]
    assert lines[0]["rouge_l"] == 1
    assert values["rouge_l"] == pytest.approx(sum(line["rouge_l"] for line in lines) / 2)


def test_some_metrics_may_be_asked_for(files: tuple[str, str]) -> None:
    printed = run("score", *files, "-m", "rouge_l", "-m", "bleu2", "--json")
    values = json.loads(printed[printed.index("{") :])
    assert {"bleu2", "rouge_l"} < values.keys()
    assert not {"bleu1", "meteor", "cider_d"} & values.keys()


def judge(folder: Path, captions: dict[str, str], tables: dict[str, list[str]]) -> None:
    """A folder of judgements: photo x is described by "a red dog runs", every other photo by its caption."""
    rows = [f"x.jpg\t{n}\ta red dog runs\n" for n in range(5)]
    rows += [f"{photo}.jpg\t0\t{text}\n" for photo, text in captions.items()]
    tables = {"captions": ["image\tn\tcaption\n", *rows], **tables}
    for name, lines in tables.items():
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress("".join(lines).encode()))


CAPTIONS = {"p": "a red dog runs", "q": "a red dog sits", "r": "a red cat sits", "s": "one blue cat sits"}
GRADES = {"p": (4, 4, 3), "q": (3, 3, 3), "r": (2, 2, 1), "s": (1, 1, 1)}


def correlated(tmp_path: Path) -> dict[str, Any]:
    experts = [f"x.jpg\t{photo}.jpg#0\t{a}\t{b}\t{c}\n" for photo, (a, b, c) in GRADES.items()]
    experts += ["x.jpg\tx.jpg#2\t4\t4\t4\n", "x.jpg\tunheard.jpg#0\t1\t1\t1\n"]
    crowd = [f"x.jpg\t{photo}.jpg#0\t{n / 3}\t{n}\t{3 - n}\n" for n, photo in enumerate(CAPTIONS)]
    judge(
        tmp_path,
        CAPTIONS,
        {
            "ExpertAnnotations": ["image\tcaption_id\tscore1\tscore2\tscore3\n", *experts],
            "CrowdFlowerAnnotations": ["image\tcaption_id\tfrac_yes\tn_yes\tn_no\n", *crowd],
        },
    )
    printed = run("correlate", str(tmp_path), "-m", "bleu1", "-m", "meteor", "--meteor", "none", "--json")
    values: dict[str, Any] = json.loads(printed[printed.index("{") :])
    return values


def test_a_metric_that_ranks_as_people_do_has_tau_one(tmp_path: Path) -> None:
    values = correlated(tmp_path)
    assert values["experts"]["judgements"] == 4
    assert values["experts"]["left_out"] == {"own_captions": 1, "captions_missing": 1}
    for metric in ("bleu1", "meteor"):
        assert values["experts"]["metrics"][metric]["tau_b"] == pytest.approx(1)
        assert values["experts"]["metrics"][metric]["tau_c"] == pytest.approx(1)
        assert values["crowd"]["metrics"][metric]["tau_b"] == pytest.approx(-1)


def test_every_expert_may_count_as_a_case_of_its_own(tmp_path: Path) -> None:
    found = correlated(tmp_path)["experts"]["metrics"]["bleu1"]
    # 12 grades, 66 pairs: 3 pairs tie in each of 4 captions. Grades 4 4 3 | 3 3 3 | 2 2 1 | 1 1 1: of the 54 other
    # pairs 3 + 3 tie in the grade (a 3 and each of three, a 1 and each of three) and the rest agree.
    agree = 54 - 6
    tied = {4: 2, 3: 4, 2: 2, 1: 4}
    untied = 66 - sum(count * (count - 1) // 2 for count in tied.values())
    assert found["tau_b_each"] == pytest.approx(agree / (54 * untied) ** 0.5)
    assert found["tau_c_each"] == pytest.approx(2 * agree / (12**2 * 3 / 4))


def test_tables_of_taus_are_printed(tmp_path: Path) -> None:
    correlated(tmp_path)
    printed = run("correlate", str(tmp_path), "-m", "rouge_l")
    for word in ("experts: 4 judgements", "crowd: 4 judgements", "rouge_l", "left out: 1 of a photo's own captions"):
        assert word in printed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("score", "{}/results.json", "{}/nowhere.json"), "nowhere.json does not exist"),
        (("score", "{}/results.json", "{}/captions.json", "-m", "bleu5"), 'did you mean "bleu'),
        (("score", "{}/results.json", "{}/captions.json", "--meteor", "{}/nowhere"), "there is no such folder"),
        (("score", "{}/results.json", "{}/captions.json", "--meteor", "{}"), "holds neither meteor-1.5.jar"),
        (("score", "{}/captions.json", "{}/results.json"), "captions of the picture"),
        (("correlate", "{}"), "holds no judgements"),
        (("correlate", "{}/nowhere"), "holds no judgements"),
    ],
)
def test_mistakes_are_answered(files: tuple[str, str], words: tuple[str, ...], expected: str) -> None:
    folder = str(Path(files[0]).parent)
    with pytest.raises(SaccadeError) as error:
        run(*(word.format(folder) for word in words))
    assert expected in str(error.value)
