"""Flickr30k Entities (Plummer et al. 2015): which words of a caption name which boxes of the photo.

A *chain* joins the phrases of a photo's five sentences that mean the same thing; most chains have boxes. Two layouts
become one record: `entities.jsonl.gz` (one photo a line), and as published `Annotations/ID.xml` with boxes beside
`Sentences/ID.txt` with marked phrases: `[/EN#283585/people A young boy] sleeps on [/EN#283588/other a bench] .` The XML
comes from elsewhere: files that declare entities (the way to make a parser eat all memory) and large ones are refused.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import read_text
from saccade.data.datasets.photos.folder import PhotoFolder, first_folder, has_words, read_split_lists
from saccade.data.records import (
    BoxedPicture,
    Candidates,
    CaptionedPhotos,
    GroundedPhrase,
    Groundings,
    PhrasedBoxes,
    Referrals,
    Triplet,
)
from saccade.data.registry import chosen_splits
from saccade.data.text_files import JsonEntry, as_number, find_file, pixel_box, read_json_lines
from saccade.language import shared_parser
from saccade.language.caption_words import predicate_name
from saccade.language.phrases import NounPhrase, chain_name, read_phrase
from saccade.language.tokenise import tokenise

FOLDER_HOLDS = "entities.jsonl.gz, or as published Annotations/ and Sentences/"
PHOTO_FOLDERS = ("images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset")
MAX_XML_BYTES = 1 << 22  # of an annotation; the published ones have a few thousand
MARK = re.compile(r"\[/EN#(\d+)((?:/[\w-]+)+)\s+([^\[\]]*)\]")
LISTS = {"train": "train.txt", "val": "val.txt", "test": "test.txt"}


@dataclass(frozen=True)
class EntityPhrase:
    """Some words of a sentence that name a thing."""

    first_word: int  # its place among the words of the sentence, split at blanks
    words: tuple[str, ...]
    chain: str  # "0": nothing that a photo shows
    types: tuple[str, ...]  # people, clothing, bodyparts, animals, vehicles, instruments, scene, other, notvisual


@dataclass(frozen=True)
class EntitySentence:
    text: str
    phrases: tuple[EntityPhrase, ...]


@dataclass(frozen=True)
class EntityPicture:
    """One photo with its sentences, the phrases in them, and their boxes."""

    id: str  # the file's name
    width: int
    height: int
    sentences: tuple[EntitySentence, ...]
    boxes: Mapping[str, Float32[np.ndarray, "box 4"]]  # by chain, x1, y1, x2, y2 in 0..1
    scene: tuple[str, ...] = ()  # chains that mean the whole picture
    nobox: tuple[str, ...] = ()  # chains that could not be boxed
    split: str | None = None

    def phrases(self, chain: str) -> Iterator[EntityPhrase]:
        return (p for sentence in self.sentences for p in sentence.phrases if p.chain == chain)


def read_entities(root: Path, split: str | None = None) -> Iterator[EntityPicture]:
    """The photos of a split ("train+extra" is a sum), or of all where none is given."""
    path = find_file(root, "entities.jsonl.gz")
    if path is not None:
        pictures = read_entity_lines(path)
        if split is None:
            yield from pictures
            return
        found = list(pictures)
        wanted = chosen_splits(split, {p.split for p in found if p.split is not None}, path)
        yield from (picture for picture in found if picture.split in wanted)
    elif (root / "Annotations").is_dir():
        yield from read_published(root, split)
    else:
        raise SaccadeError(f"{root} has no Entities: {FOLDER_HOLDS} were expected there")


def open_entity_boxes(split: str, root: Path, photos: Path | None = None) -> tuple[BoxedPicture, ...]:
    """Photos with named boxes: each chain by the noun most of its phrases use, its adjectives as attributes.

    `photos` is the folder of photos, where it is none of the usual ones below `root`.
    """
    pictures = list(read_entities(root, split))
    folder = PhotoFolder(photos or first_folder(root, PHOTO_FOLDERS))
    return tuple(boxed_picture(picture, folder.path(picture.id, root)) for picture in pictures)


def boxed_picture(picture: EntityPicture, path: Path) -> BoxedPicture:
    """Chains that no phrase gives a name (pronouns) are left out; the same box under the same name counts once."""
    things: dict[tuple[tuple[float, ...], str], tuple[dict[str, None], list[str]]] = {}
    places: dict[str, list[int]] = {}  # of a chain's boxes among the things
    for chain, boxes in picture.boxes.items():
        phrases = [read_entity(phrase) for phrase in picture.phrases(chain)]
        named = chain_name(phrases)
        if named is not None and named.name is not None:
            for key in [(tuple(box), named.name) for box in boxes.tolist()]:
                attributes, said = things.setdefault(key, ({}, []))
                attributes.update(dict.fromkeys(named.attributes))
                said += [phrase.name for phrase in phrases if phrase.name is not None]
                places.setdefault(chain, []).append(list(things).index(key))
    return BoxedPicture.of(
        picture.id,
        path,
        (picture.width, picture.height),
        ((box, name, tuple(attributes)) for (box, name), (attributes, _) in things.items()),
        (tuple(said) for _, said in things.values()),
        entity_relations(picture, places, np.array([box for box, _ in things]).reshape(-1, 4)),
    )


def entity_relations(
    picture: EntityPicture, places: Mapping[str, Sequence[int]], boxes: Float[np.ndarray, "thing 4"]
) -> list[Triplet]:
    """What the sentences say of two chains that have boxes: (subject, predicate, object), by `places` of the boxes.

    Where a chain has several boxes ("men wearing hats"), each takes part with the nearest box of the other chain.
    """
    middles = boxes[:, :2] + boxes[:, 2:]
    found: dict[Triplet, None] = {}
    for sentence in picture.sentences:
        words = [tokenise(word) for word in sentence.text.split()]
        chain_of = {p.first_word + n: p.chain for p in sentence.phrases for n in range(len(p.words))}
        owner = [chain_of.get(place, "") for place, tokens in enumerate(words) for _ in tokens]
        (parse,) = shared_parser().parse_tokens([tuple(token for tokens in words for token in tokens)])
        for relation in parse.relations:
            ends = [places.get(owner[end.place], ()) for end in (relation.subject, relation.object)]
            predicate = predicate_name(relation.predicate, relation.passive)
            subjects, objects = ends[::-1] if relation.passive else ends
            if not (subjects and objects and predicate) or subjects is objects:
                continue
            apart = ((middles[list(subjects), None] - middles[None, list(objects)]) ** 2).sum(axis=2)
            pairs = [(i, int(j)) for i, j in enumerate(apart.argmin(axis=1))]
            pairs += [(int(i), j) for j, i in enumerate(apart.argmin(axis=0))]
            found.update(dict.fromkeys((subjects[i], predicate, objects[j]) for i, j in pairs))
    return [triplet for triplet in found if triplet[0] != triplet[2]]


def open_entity_phrases(split: str, root: Path) -> Iterator[tuple[str, Path, PhrasedBoxes]]:
    """(id, photo, boxes with phrases) of each photo: each box of a chain with the words of all its phrases."""
    folder: PhotoFolder | None = None
    for picture in read_entities(root, split):
        folder = folder or PhotoFolder(first_folder(root, PHOTO_FOLDERS))
        yield picture.id, folder.path(picture.id, root), phrased_boxes(picture)


def open_entity_grounding(split: str, root: Path) -> Groundings[CaptionedPhotos]:
    """The sentences of a split and the boxes of their phrases; phrases without a box are left out."""
    pictures = sorted(read_entities(root, split), key=lambda picture: picture.id)
    if not pictures:
        raise SaccadeError(f'{root} has no phrases with boxes of the split "{split}"')
    folder = PhotoFolder(first_folder(root, PHOTO_FOLDERS))
    sentences = [sentence for picture in pictures for sentence in picture.sentences]
    photos = CaptionedPhotos(
        name=root.name,
        split=split,
        ids=tuple(picture.id for picture in pictures),
        paths=tuple(folder.path(picture.id, root) for picture in pictures),
        texts=tuple(sentence.text for sentence in sentences),
        image_of_text=np.repeat(np.arange(len(pictures)), [len(picture.sentences) for picture in pictures]),
    )
    boxes = (picture.boxes for picture in pictures for _ in picture.sentences)
    return Groundings(photos, tuple(grounded_phrases(*own) for own in zip(sentences, boxes, strict=True)))


def grounded_phrases(sentence: EntitySentence, boxes: Mapping[str, np.ndarray]) -> tuple[GroundedPhrase, ...]:
    return tuple(
        GroundedPhrase(
            phrase.first_word, phrase.first_word + len(phrase.words), boxes[phrase.chain], next(iter(phrase.types), "")
        )
        for phrase in sentence.phrases
        if len(boxes.get(phrase.chain, ()))
    )


def open_entity_referring(split: str, root: Path) -> Referrals[CaptionedPhotos]:
    """Phrases that mean one box, of the two or more boxes of its type (people, clothing …) that the photo has.

    A phrase that several sentences have counts once; the kind of a text, and the category of a box, is its type.
    """
    pictures = sorted(read_entities(root, split), key=lambda picture: picture.id)
    folder = PhotoFolder(first_folder(root, PHOTO_FOLDERS))
    rows = [(n, *row) for n, picture in enumerate(pictures) for row in _single_boxes(picture)]
    if not rows:
        raise SaccadeError(f'{root} has no two boxes of one type in a photo of the split "{split}"')
    owners, texts, choices, targets, kinds = zip(*rows, strict=True)
    photos = CaptionedPhotos(
        name=root.name,
        split=split,
        ids=tuple(picture.id for picture in pictures),
        paths=tuple(folder.path(picture.id, root) for picture in pictures),
        texts=texts,
        image_of_text=np.array(owners, dtype=np.int64),
    )
    typed = ([(box, kind) for kind, boxes in _typed_boxes(picture).items() for box in boxes] for picture in pictures)
    candidates = tuple(
        Candidates(np.array([box for box, _ in own], dtype=np.float32).reshape(-1, 4), tuple(kind for _, kind in own))
        for own in typed
    )
    return Referrals(photos, texts, candidates, choices, targets, kinds)


def _typed_boxes(picture: EntityPicture) -> dict[str, list[tuple[float, ...]]]:
    """The different boxes of each type, in the order of the chains; a chain is of the type of its first phrase."""
    found: dict[str, dict[tuple[float, ...], None]] = {}
    for chain, boxes in picture.boxes.items():
        phrase = next(picture.phrases(chain), None)
        if phrase is not None:
            found.setdefault(phrase.types[0], {}).update(dict.fromkeys(map(tuple, boxes.tolist())))
    return {kind: list(boxes) for kind, boxes in found.items()}


def _single_boxes(picture: EntityPicture) -> Iterator[tuple[str, tuple[int, ...], int, str]]:
    """Text, the places of the boxes it chooses among, which of them it means, and its type."""
    first, typed = 0, _typed_boxes(picture)
    place: dict[str, tuple[int, list[tuple[float, ...]]]] = {}
    for kind, boxes in typed.items():
        place[kind] = first, boxes
        first += len(boxes)
    said: set[tuple[str, int]] = set()
    for chain, found in picture.boxes.items():
        phrases = [phrase for phrase in picture.phrases(chain) if has_words(" ".join(phrase.words))]
        if len(found) != 1 or not phrases or len(place[phrases[0].types[0]][1]) < 2:
            continue
        kind = phrases[0].types[0]
        start, boxes = place[kind]
        target = boxes.index(tuple(found[0].tolist()))
        for text in (" ".join(phrase.words).lower() for phrase in phrases):
            if (text, start + target) not in said:
                said.add((text, start + target))
                yield text, tuple(range(start, start + len(boxes))), target, kind


def phrased_boxes(picture: EntityPicture) -> PhrasedBoxes:
    """The boxes of every chain that some phrase names; a chain of several boxes gives its phrases to each."""
    boxes: list[np.ndarray] = []
    phrases: list[tuple[str, ...]] = []
    for chain, found in picture.boxes.items():
        texts = dict.fromkeys(" ".join(phrase.words).lower() for phrase in picture.phrases(chain))
        named = tuple(text for text in texts if has_words(text))
        if named:
            boxes += list(found)
            phrases += [named] * len(found)
    return PhrasedBoxes(np.array(boxes, dtype=np.float32).reshape(-1, 4), tuple(phrases))


def read_entity(phrase: EntityPhrase) -> NounPhrase:
    """The thing that a phrase names; "(a man in) black", marked as clothing, are black clothes."""
    named = read_phrase(phrase.words)
    if named.name is None and named.attributes and "clothing" in phrase.types:
        return NounPhrase("clothes", named.attributes)
    return named


def corner_box(corners: list[float], width: int, height: int, where: str) -> Float32[np.ndarray, " 4"]:
    """xmin, ymin, xmax, ymax as Entities counts pixels: from 1, the last one included."""
    x1, y1, x2, y2 = corners
    return pixel_box((x1 - 1, y1 - 1, x2, y2), width, height, where)


def read_entity_lines(path: Path) -> Iterator[EntityPicture]:
    """`entities.jsonl.gz`: image, width, height, split, boxes by chain in pixels, scene, nobox, sentences."""
    seen: set[str] = set()
    for line, value in read_json_lines(path):
        entry = JsonEntry.of(value, f"{path}, line {line}")
        picture = _picture(entry)
        if picture.id in seen:
            raise SaccadeError(f"{entry.where}: {picture.id} occurs a second time")
        seen.add(picture.id)
        yield picture


def _picture(entry: JsonEntry) -> EntityPicture:
    width, height = entry.whole("width", 1), entry.whole("height", 1)
    boxed = entry.entry("boxes")
    boxes = {}
    for chain in boxed.values:
        rows = []
        for n, corners in enumerate(boxed.list(chain)):
            where = f"{entry.where}: boxes.{chain}[{n}]"
            if not isinstance(corners, list) or len(corners) != 4:
                raise SaccadeError(f"{where} is not [xmin, ymin, xmax, ymax]")
            rows.append(corner_box([as_number(c, where) for c in corners], width, height, where))
        boxes[chain] = np.array(rows, dtype=np.float32).reshape(-1, 4)
    return EntityPicture(
        id=entry.text("image"),
        width=width,
        height=height,
        sentences=tuple(_sentence(sentence) for sentence in entry.entries("sentences")),
        boxes=boxes,
        scene=entry.texts("scene"),
        nobox=entry.texts("nobox"),
        split=entry.text("split") if "split" in entry else None,
    )


def _sentence(entry: JsonEntry) -> EntitySentence:
    text = entry.text("text")
    words = text.split()
    phrases = []
    for phrase in entry.entries("phrases"):
        first, count = phrase.whole("first_word"), phrase.whole("n_words", 1)
        if first + count > len(words):
            raise SaccadeError(f"{phrase.where}: words {first} to {first + count - 1} of {len(words)} were marked")
        found = tuple(words[first : first + count])
        phrases.append(EntityPhrase(first, found, phrase.text("chain"), phrase.texts("types")))
    return EntitySentence(text, tuple(phrases))


def read_published(root: Path, split: str | None = None) -> Iterator[EntityPicture]:
    """The photos of a split by the lists train.txt, val.txt, test.txt; without a split, every annotation there is."""
    split_of = read_split_lists(root, LISTS)
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
        if path.stat().st_size > MAX_XML_BYTES:
            raise SaccadeError(f"{path} has more than {MAX_XML_BYTES >> 20} MB, which no annotation has")
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
