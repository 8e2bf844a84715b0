"""Photo data sets whose files are spoiled: each reader gives its records or one clear error, never anything else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interaction_samples import hico, vrd
from photo_samples import (
    ENTITY_LINE,
    coco_folder,
    coco_line_folder,
    entailment_line,
    entities_published,
    entity_lines,
    flickr8k_tables,
    genome_folder,
    karpathy_folder,
)
from question_samples import clevr_folder, daquar_table, gqa_folder, rad_published, vqa_folder
from referring_samples import guesswhat, refcoco
from video_samples import (
    activitynet_folder,
    charades_folder,
    highlights_folder,
    msrvtt_folder,
    msvd_folder,
    tacos_folder,
)

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.visual_genome import read_regions, read_relations
from saccade.data.registry import DATA_SETS

FOLDERS: dict[str, tuple[str, str, Callable[[Path], Path]]] = {  # data set, split, what makes a sound folder of it
    "flickr8k tables": ("flickr8k", "train+dev", flickr8k_tables),
    "entities, a line a photo": ("flickr8k", "train", lambda root: entity_lines(root, ENTITY_LINE)),
    "entailment": ("flickr8k", "train", lambda root: entailment_line(flickr8k_tables(root))),
    "entities as published": ("flickr30k", "train", entities_published),
    "flickr30k": ("flickr30k", "train+val", karpathy_folder),
    "coco": ("coco", "train", coco_folder),
    "coco_mini": ("coco_mini", "dev", coco_line_folder),
    "visual_genome": ("visual_genome", "all", genome_folder),
    "daquar": ("daquar", "train+test", daquar_table),
    "vqa_rad": ("vqa_rad", "train+dev", rad_published),
    "vqa_v2": ("vqa_v2", "train", vqa_folder),
    "gqa": ("gqa", "val", gqa_folder),
    "refcoco": ("refcoco", "train", refcoco),
    "guesswhat": ("guesswhat", "val", guesswhat),
    "clevr": ("clevr", "train", clevr_folder),
    "hico": ("hico", "train", lambda root: hico(root).root or root),
    "vrd": ("vrd", "train", lambda root: vrd(root).root or root),
    "msvd": ("msvd", "train+test", msvd_folder),
    "msrvtt": ("msrvtt", "test_1k_a", msrvtt_folder),
    "charades_sta": ("charades_sta", "train", charades_folder),
    "activitynet": ("activitynet", "val", activitynet_folder),
    "tacos": ("tacos", "test", tacos_folder),
    "qvhighlights": ("qvhighlights", "val", highlights_folder),
}
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        3,
        10**30,
        1e308,
        -0.5,
        "",
        "x",
        "é",
        "\ud800",
        "a\tb",
        "../a.jpg",
        [],
        [[]],
        {},
        {"a": 1},
        [None],
    ]
)


@st.composite
def spoiled_values(draw: st.DrawFn, value: Any) -> Any:
    """`value` with one thing in it replaced by something odd, or left out, or doubled."""
    copy = json.loads(json.dumps(value))
    holder: Any = {"": copy}
    key: Any = ""
    while isinstance(holder[key], dict | list) and holder[key] and draw(st.integers(0, 5)):
        holder = holder[key]
        key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else list(range(len(holder)))))
    how = draw(st.sampled_from(["replace", "replace", "drop", "double"]))
    if how == "replace" or key == "":
        holder[key] = draw(ODD)
        return holder[""] if "" in holder and key == "" else copy
    if how == "drop":
        del holder[key]
    elif isinstance(holder, list):
        holder.append(holder[key])
    return copy


@st.composite
def spoiled_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """`data` with some bytes changed, cut out or put in."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.integers(0, 12))
        data = data[:start] + draw(st.binary(max_size=8)) + data[end:]
    return data


@st.composite
def spoiled_file(draw: st.DrawFn, path: Path) -> bytes:
    """The bytes of a file with one value of its JSON made odd, or with some bytes changed, packed or unpacked."""
    content = path.read_bytes()
    is_packed = path.suffix == ".gz"
    if is_packed and draw(st.booleans()):
        return draw(spoiled_bytes(content))
    content = gzip.decompress(content) if is_packed else content
    if ".json" in path.name and draw(st.booleans()):  # a list a file, or of .jsonl the one line
        content = json.dumps(draw(spoiled_values(json.loads(content)))).encode()
    else:
        content = draw(spoiled_bytes(content))
    return gzip.compress(content) if is_packed else content


def readings(name: str, split: str, root: Path) -> Iterator[Callable[[], object]]:
    """Every way to read a data set: its readers in the registry, and what else is published of it."""
    for read in (DATA_SETS[name].reader(annotation) for annotation in DATA_SETS[name].readers):
        yield lambda read=read: list(found) if hasattr(found := read(split, root), "__next__") else found
    if name == "visual_genome":
        yield lambda: list(read_regions(root))
        yield lambda: list(read_relations(root))


def test_every_data_set_is_spoiled() -> None:
    assert {name for name, _, _ in FOLDERS.values()} == {row.name for row in DATA_SETS.values() if row.layouts}


@pytest.mark.parametrize("folder", FOLDERS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_spoiled_file_is_read_or_refused(folder: str, data: st.DataObject) -> None:
    name, split, make = FOLDERS[folder]
    with TemporaryDirectory() as place:
        root = make(Path(place))
        files = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix not in (".jpg", ".png"))
        path = data.draw(st.sampled_from(files))
        path.write_bytes(data.draw(spoiled_file(path)))
        for read in readings(name, split, root):
            try:
                read()
            except SaccadeError as error:
                sentence = str(error)
                sentence.encode()
                assert sentence
                assert "\n" not in sentence
