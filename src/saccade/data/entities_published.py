"""Flickr30k Entities as published: `Annotations/ID.xml` with boxes, `Sentences/ID.txt` with marked phrases.

A sentence reads `[/EN#283585/people A young boy] sleeps on [/EN#283588/other a bench] .` The XML comes from elsewhere:
files that declare entities (the way to make a parser eat all memory) and large ones are refused.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from saccade.data.entities import EntityPhrase, EntityPicture, EntitySentence, corner_box
from saccade.data.lines import read_lines
from saccade.data.photos import chosen_splits
from saccade.errors import SaccadeError, explain_os_errors
from saccade.files import read_text

LARGEST = 1 << 22  # bytes of an annotation; the published ones have a few thousand
MARK = re.compile(r"\[/EN#(\d+)((?:/[\w-]+)+)\s+([^\[\]]*)\]")
LISTS = ("train", "val", "test")


def read_published(root: Path, split: str | None = None) -> Iterator[EntityPicture]:
    """The photos of a split by the lists train.txt, val.txt, test.txt; without a split, every annotation there is."""
    split_of = {
        line.strip(): part
        for part in LISTS
        if (root / f"{part}.txt").is_file()
        for _, line in read_lines(root / f"{part}.txt")
        if line.strip()
    }
    if split is None:
        ids = sorted(path.stem for path in (root / "Annotations").glob("*.xml"))
    elif not split_of:
        raise SaccadeError(f"{root / 'train.txt'} is missing: train.txt, val.txt and test.txt name the splits")
    else:
        wanted = chosen_splits(split, set(split_of.values()), root)
        ids = [id for id, part in split_of.items() if part in wanted]
    for id in ids:
        if not re.fullmatch(r"[\w.-]+", id):
            raise SaccadeError(f"{root}: the photo {id[:80]!r} of a list is not a plain name")
        yield read_published_picture(root, id, split_of.get(id))


def read_published_picture(root: Path, id: str, split: str | None = None) -> EntityPicture:
    path = root / "Annotations" / f"{id}.xml"
    tree = parse_xml(path)
    name = tree.findtext("filename", f"{id}.jpg").strip()
    if not name.startswith(id):
        raise SaccadeError(f"{path}: the file name is {name[:80]!r}, one of {id} was expected")
    width, height = (_whole(tree, f"size/{side}", path) for side in ("width", "height"))
    if width < 1 or height < 1:
        raise SaccadeError(f"{path}: the size is {width} × {height}")
    boxes: dict[str, list[np.ndarray]] = {}
    scene: list[str] = []
    nobox: list[str] = []
    for number, thing in enumerate(tree.iter("object"), start=1):
        chains = [(found.text or "").strip() for found in thing.findall("name")]
        if not chains or not all(chain.isdecimal() for chain in chains):
            raise SaccadeError(f"{path}: object {number} has no <name> that is a number")
        if thing.find("bndbox") is not None:
            corners = [float(_whole(thing, f"bndbox/{side}", path)) for side in ("xmin", "ymin", "xmax", "ymax")]
            box = corner_box(corners, width, height, f"{path}: object {number}")
            for chain in chains:
                boxes.setdefault(chain, []).append(box)
        else:
            scene += chains if thing.findtext("scene", "").strip() == "1" else []
            nobox += chains if thing.findtext("nobndbox", "").strip() == "1" else []
    sentences = read_sentences(root / "Sentences" / f"{id}.txt")
    arrays = {chain: np.array(found, dtype=np.float32) for chain, found in boxes.items()}
    return EntityPicture(name, width, height, sentences, arrays, tuple(scene), tuple(nobox), split)


def read_sentences(path: Path) -> tuple[EntitySentence, ...]:
    lines = read_text(path).split("\n")
    return tuple(parse_sentence(s.strip(), f"{path}, line {n}") for n, s in enumerate(lines, start=1) if s.strip())


def parse_sentence(marked: str, where: str) -> EntitySentence:
    """The sentence without its marks, and the phrases by the places of their words."""
    words: list[str] = []
    phrases: list[EntityPhrase] = []
    place = 0
    for mark in MARK.finditer(marked):
        words += marked[place : mark.start()].split()
        chain, types, text = mark.groups()
        found = tuple(text.split())
        if not found:
            raise SaccadeError(f"{where}: the phrase of chain {chain} is empty")
        phrases.append(EntityPhrase(len(words), found, chain, tuple(types.strip("/").split("/"))))
        words += found
        place = mark.end()
    words += marked[place:].split()
    if any("[/EN#" in word for word in words):
        raise SaccadeError(f"{where}: [/EN#chain/type words] was expected, a mark is broken")
    return EntitySentence(" ".join(words), tuple(phrases))


def parse_xml(path: Path) -> ET.Element:
    """The root of a small XML file that declares nothing."""
    with explain_os_errors(path, "read"):
        if path.stat().st_size > LARGEST:
            raise SaccadeError(f"{path} has more than {LARGEST >> 20} MB, which no annotation has")
    text = read_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise SaccadeError(f"{path} declares entities, which annotations do not do and which is not read")
    try:
        return ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise SaccadeError(f"{path} is not valid XML: {error}") from error


def _whole(element: ET.Element, tag: str, path: Path) -> int:
    text = (element.findtext(tag) or "").strip()
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise SaccadeError(f"{path}: <{tag}> is {text[:40]!r}, a whole number was expected")
    return int(text)
