"""Readers of questions: DAQUAR, VQA-RAD, VQA v2, GQA and CLEVR as they are laid out, and broken in every way."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from photo_samples import make_photo, write, write_value
from question_samples import (
    CLEVR,
    GQA,
    VQA_ANSWERS,
    clevr_folder,
    daquar_published,
    daquar_table,
    functions,
    gqa_folder,
    rad_lines,
    rad_published,
    semantic,
    vqa_annotations,
    vqa_folder,
)
from typer.testing import CliRunner

from saccade.batch import Step
from saccade.cli.data import app
from saccade.core.errors import SaccadeError
from saccade.data.datasets.questions.rows import with_dev
from saccade.data.records import CaptionedPhotos, Questions
from saccade.data.registry import DATA_SETS, DataConfig, open_records, recognise

FOLDERS: dict[str, tuple[Callable[[Path], Path], str]] = {  # data set and layout → what makes it, its first split
    "daquar": (daquar_table, "train"),
    "daquar published": (daquar_published, "train"),
    "vqa_rad": (rad_lines, "train"),
    "vqa_rad published": (rad_published, "train"),
    "vqa_v2": (vqa_folder, "train"),
    "gqa": (gqa_folder, "val"),
    "clevr": (clevr_folder, "train"),
}


def opened(name: str, root: Path, split: str) -> Questions[CaptionedPhotos]:
    found: Questions[CaptionedPhotos] = open_records(DataConfig(name.split()[0], root), split, "questions")
    return found


@pytest.mark.parametrize("make", [daquar_table, daquar_published, lambda root: daquar_published(root, "37")])
def test_daquar_reads_alike_as_a_table_and_as_published(make: Callable[[Path], Path], tmp_path: Path) -> None:
    root = make(tmp_path)
    train, dev, test = (opened("daquar", root, split) for split in ("train", "dev", "test"))
    assert train.texts == ("what is on the right side of the black telephone", "how many chairs are there")
    assert train.answers == (("desk",), ("2",))
    assert (train.kinds, train.ids) == (("object", "number"), ("train1", "train2"))
    assert train.pictures.image_of_text.tolist() == [0, 0]
    assert [path.is_file() and path.stem for path in train.pictures.paths] == ["image4"]
    assert (dev.ids, dev.answers, dev.kinds) == (("train3",), (("red, white",),), ("colour",))
    assert (test.texts, test.ids) == (("what is on the bed",), ("test1",))
    assert len(opened("daquar", root, "train+dev").texts) == 3


@pytest.mark.parametrize("make", [rad_lines, rad_published])
def test_vqa_rad_reads_alike_in_lines_and_as_published(make: Callable[[Path], Path], tmp_path: Path) -> None:
    root = make(tmp_path)
    train, dev, test = (opened("vqa_rad", root, split) for split in ("train", "dev", "test"))
    assert train.answers == (("No",), ("The Lung.",))
    assert (train.kinds, train.ids) == (("closed", "open"), ("0", "1"))
    assert (dev.texts, dev.answers, dev.kinds) == (("How many masses are there?",), (("2",),), ("closed",))
    assert (test.ids, test.pictures.ids) == (("3",), ("synpic5.jpg",))


def test_a_folder_of_test_questions_alone_is_enough(tmp_path: Path) -> None:
    root = rad_lines(tmp_path)
    last = gzip.decompress((root / "questions.jsonl.gz").read_bytes()).splitlines()[-1]
    (root / "questions.jsonl.gz").write_bytes(gzip.compress(last))
    assert len(opened("vqa_rad", root, "test").texts) == 1
    with pytest.raises(SaccadeError, match=r'no split "train" \(there are: test\)'):
        opened("vqa_rad", root, "train")


def test_what_is_held_out_depends_on_the_photo_alone() -> None:
    names = [f"image{n}.jpg" for n in range(1, 1450)]
    held_out = [name for name in names if with_dev("train", name, 10) == "dev"]
    assert 100 < len(held_out) < 190
    assert held_out[:3] == ["image3.jpg", "image8.jpg", "image9.jpg"]
    assert with_dev("train", held_out[0].replace("jpg", "png"), 10) == "dev"
    assert {with_dev("test", name, 10) for name in names} == {"test"}


def test_vqa_has_ten_answers_and_test_splits_have_none(tmp_path: Path) -> None:
    root = vqa_folder(tmp_path)
    train, test = opened("vqa_v2", root, "train"), opened("vqa_v2", root, "test-dev")
    assert train.answers == tuple(map(tuple, VQA_ANSWERS.values()))
    assert train.kinds == ("yes/no", "number", "other")
    assert train.ids == test.ids == ("42000", "42001", "42002")
    assert train.pictures.ids == ("COCO_train2014_000000000042.jpg",)
    assert (test.answers, test.kinds) == (((),) * 3, ("",) * 3)
    assert test.pictures.paths[0].parent.name == "test2015"


def test_vqa_finds_photos_under_their_names_of_2017(tmp_path: Path) -> None:
    root = vqa_folder(tmp_path)
    photo = next((root / "images" / "train2014").iterdir())
    photo.unlink()
    photo.parent.rmdir()
    make_photo(root / "val2017" / "000000000042.jpg", 8, 8)
    assert opened("vqa_v2", root, "train").pictures.paths == (root / "val2017" / "000000000042.jpg",)


def test_vqa_says_which_answers_are_missing_and_where_to_get_them(tmp_path: Path) -> None:
    root = vqa_folder(tmp_path)
    file = root / "annotations" / "v2_mscoco_train2014_annotations.json"
    value = vqa_annotations()
    write_value(file, value | {"annotations": value["annotations"][1:]})
    with pytest.raises(SaccadeError, match="the question 42000 has no answers"):
        opened("vqa_v2", root, "train")
    write_value(file, value | {"annotations": value["annotations"] * 2})
    with pytest.raises(SaccadeError, match="42000 occurs a second time"):
        opened("vqa_v2", root, "train")
    file.unlink()
    with pytest.raises(SaccadeError, match=r"v2_mscoco_train2014_annotations\.json is missing.*visualqa\.org"):
        opened("vqa_v2", root, "train")


def test_gqa_has_programs_in_our_steps_where_they_fit(tmp_path: Path) -> None:
    root = gqa_folder(tmp_path)
    val = opened("gqa", root, "dev")
    assert (val.kinds, val.ids) == (("verify", "query", "compare"), tuple(GQA))
    assert val.answers == (("yes",), ("tree",), ("no",))
    assert val.programs == (
        (Step("scene"), Step("filter", (0,), "sky"), Step("filter", (1,), "dark"), Step("exist", (2,))),
        (
            *(Step("scene"), Step("filter", (0,), "car"), Step("filter", (1,), "red")),
            *(Step("relate", (2,), "to the left of"), Step("query", (3,), "kind")),
        ),
        (
            *(Step("scene"), Step("filter", (0,), "car"), Step("scene"), Step("filter", (2,), "tree")),
            *(Step("equal", (1, 3), "colour"), Step("not", (4,))),
            *(Step("relate", (1,), "tree,near,o"), Step("choose healthier", (1, 6)), Step("or", (5, 7))),
        ),
    )
    test = opened("gqa", root, "test")
    assert (test.answers, test.kinds, test.programs) == (((),) * 3, ("",) * 3, ())
    assert opened("gqa", root, "train_all").ids == ("1", "2")


def test_clevr_programs_compare_things(tmp_path: Path) -> None:
    root = clevr_folder(tmp_path)
    train = opened("clevr", root, "train")
    assert train.kinds == ("compare_integer", "compare_attribute", "count")
    assert train.programs == (
        (
            *(Step("scene"), Step("filter", (0,), "red"), Step("scene"), Step("filter", (2,), "sphere")),
            *(Step("relate", (3,), "left of"), Step("filter", (4,), "cube"), Step("more", (1, 5))),
        ),
        (
            *(Step("scene"), Step("filter", (0,), "cube"), Step("filter", (0,), "sphere")),
            Step("equal", (1, 2), "colour"),
        ),
        (Step("scene"), Step("filter", (0,), "cube"), Step("same", (1,), "size"), Step("count", (2,))),
    )
    test = opened("clevr", root, "test")
    assert (test.answers, test.programs) == (((),) * 3, ())
    assert len(set(opened("clevr", root, "train+test").ids)) == 6


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        (functions(("scene", [], []), ("count", [1], [])), "earlier steps"),
        (functions(("scene", [], []), ("fly", [0], [])), '"fly" is no step'),
        (functions(("scene", [], []), ("filter_color", [0], [])), '"filter_color" is no step'),
        (functions(("scene", [], []), ("count", [0], []), ("less_than", [1, 0], [])), "compares attributes or counts"),
        ([], "no steps"),
    ],
)
def test_a_broken_program_of_clevr_is_named(tmp_path: Path, steps: list[Any], fault: str) -> None:
    root = clevr_folder(tmp_path)
    question = CLEVR[0] | {"program": steps, "image_filename": "CLEVR_train_000000.png"}
    write_value(root / "questions" / "CLEVR_train_questions.json", {"questions": [question]})
    with pytest.raises(SaccadeError, match=f"questions.0.*{fault}"):
        opened("clevr", root, "train")


def test_a_broken_program_of_gqa_is_named(tmp_path: Path) -> None:
    root = gqa_folder(tmp_path)
    broken = GQA["1"] | {"semantic": semantic(("exist", [0], "?"))}
    write_value(root / "questions" / "val_balanced_questions.json", {"1": broken})
    with pytest.raises(SaccadeError, match=r'semantic\[0\]: "dependencies" must name earlier steps'):
        opened("gqa", root, "val")


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_is_recognised_and_checked(folder: str, tmp_path: Path) -> None:
    root = FOLDERS[folder][0](tmp_path)
    found = recognise(root)
    assert found is not None
    assert found.name == folder.split()[0]
    result = CliRunner().invoke(app, ["check", str(root), "--photos"], env={"COLUMNS": "200"})
    assert (result.exit_code, "no problems" in result.output) == (0, True), result.output
    assert "questions" in result.output
    assert DATA_SETS[found.name].licence in " ".join(result.output.split())


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_question_about_a_missing_photo_names_it(folder: str, tmp_path: Path) -> None:
    make, split = FOLDERS[folder]
    root = make(tmp_path)
    lost = opened(folder, root, split).pictures.paths[0]
    lost.unlink()
    with pytest.raises(SaccadeError, match=f"{lost.stem}.* is missing"):
        opened(folder, root, split)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("fault", ["cut short", "not UTF-8", "missing"])
def test_a_broken_file_gives_one_sentence(folder: str, fault: str, tmp_path: Path) -> None:
    make, split = FOLDERS[folder]
    root = make(tmp_path)
    first = next(
        p
        for p in sorted(root.rglob("*"))
        if p.suffix in (".tsv", ".txt", ".gz", ".json") and not {"test", "all"} & set(re.split(r"\W|_", p.name))
    )
    content = first.read_bytes()
    if fault == "missing":
        first.unlink()
    else:
        first.write_bytes(content[: len(content) * 2 // 3] if fault == "cut short" else content[:-9] + b"\xff\xfe\n")
    with pytest.raises(SaccadeError) as caught:
        opened(folder, root, split)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("folder", "file", "change", "fault"),
    [
        (
            "vqa_rad published",
            "VQA_RAD Dataset Public.json",
            lambda rows: rows + rows[:1],
            "question 0 occurs a second",
        ),
        ("vqa_rad published", "VQA_RAD Dataset Public.json", lambda r: [r[0] | {"answer": " "}], "the answer is empty"),
        ("vqa_rad published", "VQA_RAD Dataset Public.json", lambda r: [r[0] | {"question": " ?"}], "has no words"),
        ("vqa_rad published", "VQA_RAD Dataset Public.json", lambda r: [r[0] | {"answer": [1]}], "text was expected"),
        ("vqa_rad published", "VQA_RAD Dataset Public.json", lambda r: [r[0] | {"qid": float("nan")}], "NaN"),
        ("gqa", "questions/val_balanced_questions.json", lambda r: {"1": 3}, "a mapping was expected"),
        ("gqa", "questions/val_balanced_questions.json", lambda r: {}, "has no questions of the split"),
        ("clevr", "questions/CLEVR_train_questions.json", lambda r: {"questions": r["questions"] * 2}, "second time"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(
    folder: str, file: str, change: Callable[[Any], Any], fault: str, tmp_path: Path
) -> None:
    make, split = FOLDERS[folder]
    root = make(tmp_path)
    write_value(root / file, change(json.loads((root / file).read_bytes())))
    with pytest.raises(SaccadeError, match=fault):
        opened(folder, root, split)


def test_a_published_question_without_answer_or_photo_is_named(tmp_path: Path) -> None:
    root = daquar_published(tmp_path)
    file = write(
        root / "qa.894.raw.test.txt", "what is on the bed in the image5 ?\npillow\nwhat is red in the image5 ?\n"
    )
    with pytest.raises(SaccadeError, match=r"qa\.894\.raw\.test\.txt ends with a question that has no answer"):
        opened("daquar", root, "test")
    write(file, "what is on the bed ?\npillow\n")
    with pytest.raises(SaccadeError, match=r'test\.txt, line 1: a question about "the image3" was expected'):
        opened("daquar", root, "test")
    write(root / "qa.tsv", "split\timage\tquestion\tanswer\ntest\timage5.png\twhat is red\t \n")
    with pytest.raises(SaccadeError, match=r"qa\.tsv, line 2: the answer is empty"):
        opened("daquar", root, "test")
