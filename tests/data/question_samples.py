"""Small data sets of questions in their official layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from photo_samples import make_photo, write, write_rows, write_value

# image9 and synpic4 have checksums that put them into dev
DAQUAR = [
    ("train", "image4", "what is on the right side of the black telephone", "desk"),
    ("train", "image4", "how many chairs are there", "2"),
    ("train", "image9", "what color is the wall", "red, white"),
    ("test", "image5", "what is on the bed", "pillow, blanket"),
]


def daquar_table(root: Path) -> Path:
    rows = [(split, f"{photo}.jpg", text, answer) for split, photo, text, answer in DAQUAR]
    write_rows(root / "qa.tsv", ("split", "image", "question", "answer"), *rows)
    for _, photo, _, _ in DAQUAR:
        make_photo(root / "images" / f"{photo}.jpg", 8, 8)
    return root


def daquar_published(root: Path, size: str = "894") -> Path:
    for split in ("train", "test"):
        rows = [f"{text} in the {photo} ?\n{answer}\n" for part, photo, text, answer in DAQUAR if part == split]
        write(root / f"qa.{size}.raw.{split}.txt", "".join(rows))
    for _, photo, _, _ in DAQUAR:
        make_photo(root / "nyu_depth_images" / f"{photo}.png", 8, 8)
    return root


RAD = [
    ("synpic5", "freeform", "Are the lungs normal?", "No", "CLOSED"),
    ("synpic5", "para", "Which organ is it?", "The Lung.", "OPEN"),
    ("synpic4", "freeform", "How many masses are there?", 2, "CLOSED "),
    ("synpic5", "test_freeform", "Is this an MRI?", "yes", "CLOSED"),
]


def rad_lines(root: Path) -> Path:
    rows = [
        {"qid": str(n), "image": f"{photo}.jpg", "phrase_type": phrase, "question": text, "answer": str(answer)}
        | {"question_type": "PRES", "answer_type": kind}
        for n, (photo, phrase, text, answer, kind) in enumerate(RAD)
    ]
    write(root / "questions.jsonl.gz", "".join(json.dumps(row) + "\n" for row in rows))
    for photo, *_ in RAD:
        make_photo(root / "images" / f"{photo}.jpg", 8, 8)
    return root


def rad_published(root: Path) -> Path:
    rows = [
        {"qid": n, "image_name": f"{photo}.jpg", "phrase_type": phrase, "question": text, "answer": answer}
        | {"question_type": "PRES", "answer_type": kind, "image_organ": "CHEST"}
        for n, (photo, phrase, text, answer, kind) in enumerate(RAD)
    ]
    write_value(root / "VQA_RAD Dataset Public.json", rows)
    for photo, *_ in RAD:
        make_photo(root / "VQA_RAD Image Folder" / f"{photo}.jpg", 8, 8)
    return root


VQA_ANSWERS = {42000: ["yes"] * 10, 42001: ["2"] * 7 + ["two", "3", ""], 42002: ["net"] * 3 + ["the net"] * 7}
VQA_TYPES = {42000: "yes/no", 42001: "number", 42002: "other"}


def vqa_annotations() -> dict[str, Any]:
    annotations = [
        {
            "question_id": id,
            "image_id": 42,
            "question_type": "what",
            "answer_type": VQA_TYPES[id],
            "multiple_choice_answer": answers[0],
            "answers": [{"answer": a, "answer_confidence": "yes", "answer_id": n} for n, a in enumerate(answers, 1)],
        }
        for id, answers in VQA_ANSWERS.items()
    ]
    return {"info": {}, "annotations": annotations}


def vqa_folder(root: Path) -> Path:
    for split in ("train2014", "test-dev2015"):
        questions = [{"question_id": id, "image_id": 42, "question": f"Question {id}?"} for id in VQA_ANSWERS]
        write_value(root / f"v2_OpenEnded_mscoco_{split}_questions.json", {"info": {}, "questions": questions})
        subset = split.replace("-dev", "")
        make_photo(root / "images" / subset / f"COCO_{subset}_000000000042.jpg", 8, 8)
    write_value(root / "annotations" / "v2_mscoco_train2014_annotations.json", vqa_annotations())
    return root


def semantic(*steps: tuple[str, list[int], str]) -> list[dict[str, Any]]:
    return [{"operation": op, "dependencies": inputs, "argument": argument} for op, inputs, argument in steps]


GQA: dict[str, dict[str, Any]] = {
    "02930152": {
        "imageId": "2354786",
        "question": "Is the sky dark?",
        "answer": "yes",
        "types": {"detailed": "verifyAttr", "semantic": "attr", "structural": "verify"},
        "semantic": semantic(("select", [], "sky (2486325)"), ("verify color", [0], "dark")),
    },
    "07333408": {
        "imageId": "2354786",
        "question": "What is left of the red car?",
        "answer": "tree",
        "types": {"detailed": "relS", "semantic": "rel", "structural": "query"},
        "semantic": semantic(
            ("select", [], "car (1,2)"),
            ("filter color", [0], "red"),
            ("relate", [1], "_,to the left of,s (3)"),
            ("query", [2], "name"),
        ),
    },
    "1": {
        "imageId": "1",
        "question": "Do the car and the tree have different colors, or is it healthier?",
        "answer": "no",
        "types": {"detailed": "diff", "semantic": "attr", "structural": "compare"},
        "semantic": semantic(
            ("select", [], "car (1)"),
            ("select", [], "tree (2)"),
            ("different color", [0, 1], ""),
            ("relate", [0], "tree,near,o (2)"),
            ("choose healthier", [0, 3], ""),
            ("or", [2, 4], ""),
        ),
    },
}


def gqa_folder(root: Path) -> Path:
    write_value(root / "questions" / "val_balanced_questions.json", GQA)
    bare = {id: {"imageId": each["imageId"], "question": each["question"]} for id, each in GQA.items()}
    write_value(root / "questions" / "test_balanced_questions.json", bare)
    write_value(root / "questions" / "train_all_questions" / "train_all_questions_0.json", {"1": GQA["1"]})
    write_value(root / "questions" / "train_all_questions" / "train_all_questions_1.json", {"2": GQA["02930152"]})
    for photo in ("2354786", "1"):
        make_photo(root / "images" / f"{photo}.jpg", 8, 8)
    return root


def functions(*steps: tuple[str, list[int], list[str]]) -> list[dict[str, Any]]:
    return [{"function": name, "inputs": inputs, "value_inputs": values} for name, inputs, values in steps]


CLEVR: list[dict[str, Any]] = [
    {
        "question": "Are there more red things than cubes left of the ball?",
        "answer": "no",
        "program": functions(
            ("scene", [], []),
            ("filter_color", [0], ["red"]),
            ("count", [1], []),
            ("scene", [], []),
            ("filter_shape", [3], ["sphere"]),
            ("unique", [4], []),
            ("relate", [5], ["left"]),
            ("filter_shape", [6], ["cube"]),
            ("count", [7], []),
            ("greater_than", [2, 8], []),
        ),
    },
    {
        "question": "Is the cube of the same colour as the ball?",
        "answer": "yes",
        "program": functions(
            ("scene", [], []),
            ("filter_shape", [0], ["cube"]),
            ("unique", [1], []),
            ("query_color", [2], []),
            ("filter_shape", [0], ["sphere"]),
            ("unique", [4], []),
            ("query_color", [5], []),
            ("equal_color", [3, 6], []),
        ),
    },
    {
        "question": "How many others have the size of the cube?",
        "answer": "3",
        "program": functions(
            ("scene", [], []),
            ("filter_shape", [0], ["cube"]),
            ("unique", [1], []),
            ("same_size", [2], []),
            ("count", [3], []),
        ),
    },
]


def clevr_folder(root: Path) -> Path:
    for split in ("train", "test"):
        common = {"image_filename": f"CLEVR_{split}_000000.png", "split": split}
        questions = [common | each | {"question_index": n} for n, each in enumerate(CLEVR)]
        if split == "test":
            questions = [{k: v for k, v in each.items() if k not in ("answer", "program")} for each in questions]
        write_value(root / "questions" / f"CLEVR_{split}_questions.json", {"info": {}, "questions": questions})
        make_photo(root / "images" / split / f"CLEVR_{split}_000000.png", 8, 8)
    return root
