"""Flickr30k Entities in both layouts: one record, named boxes, and no trust in other people's files."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from photo_samples import ENTITY_LINE, ENTITY_XML, entities_published, entity_lines, write

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.entities import (
    EntityPhrase,
    EntityPicture,
    EntitySentence,
    entity_relations,
    open_entity_boxes,
    parse_sentence,
    read_entities,
)


def test_both_layouts_give_the_same_record(tmp_path: Path) -> None:
    (one,) = read_entities(entity_lines(tmp_path / "lines", ENTITY_LINE), "train")
    (other,) = read_entities(entities_published(tmp_path / "published"), "train")
    assert (one.id, one.width, one.height, one.scene, one.nobox) == ("a.jpg", 40, 30, ("3",), ("4",))
    assert one.sentences == other.sentences
    assert one.sentences[0].phrases[1] == EntityPhrase(5, ("two", "red", "balls"), "2", ("other",))
    assert (other.id, other.width, other.height, other.scene, other.nobox) == ("a.jpg", 40, 30, ("3",), ("4",))
    assert one.boxes.keys() == other.boxes.keys() == {"1", "2"}
    for chain in one.boxes:
        np.testing.assert_array_equal(one.boxes[chain], other.boxes[chain])


def test_pixels_count_from_one_and_the_last_is_inside(tmp_path: Path) -> None:
    (picture,) = read_entities(entity_lines(tmp_path, ENTITY_LINE))
    np.testing.assert_allclose(picture.boxes["1"], [[0, 0, 0.5, 1]])
    np.testing.assert_allclose(picture.boxes["2"], [[0.25, 0.2, 0.5, 0.4], [0.75, 0.2, 1, 0.4]])


def test_boxes_are_named_by_what_most_say_with_all_adjectives(tmp_path: Path) -> None:
    for root in (entity_lines(tmp_path / "lines", ENTITY_LINE), entities_published(tmp_path / "published")):
        (picture,) = open_entity_boxes("train", root)
        assert picture.names == ("dog", "ball", "ball")
        assert picture.attributes == (("small", "brown", "wet"), ("red",), ("red",))
        assert picture.boxes.dtype == np.float32
        assert picture.path.is_file()


def test_the_same_box_under_the_same_name_counts_once(tmp_path: Path) -> None:
    line = deepcopy(ENTITY_LINE)
    line["boxes"]["5"] = line["boxes"]["1"]
    phrase = {"first_word": 0, "n_words": 3, "phrase": "A black dog", "chain": "5", "types": ["animals"]}
    line["sentences"].append({"text": "A black dog .", "phrases": [phrase]})
    (picture,) = open_entity_boxes("train", entity_lines(tmp_path, line))
    assert picture.names == ("dog", "ball", "ball")
    assert picture.attributes[0] == ("small", "brown", "wet", "black")


def test_colours_marked_as_clothing_are_clothes_and_pronouns_have_no_name(tmp_path: Path) -> None:
    line = deepcopy(ENTITY_LINE)
    phrases = [
        {"first_word": 3, "n_words": 1, "phrase": "black", "chain": "1", "types": ["clothing"]},
        {"first_word": 4, "n_words": 1, "phrase": "it", "chain": "2", "types": ["other"]},
    ]
    line["sentences"] = [{"text": "A man in black it .", "phrases": phrases}]
    (picture,) = open_entity_boxes("train", entity_lines(tmp_path, line))
    assert (picture.names, picture.attributes) == (("clothes",), (("black",),))


def test_what_sentences_say_of_boxes_becomes_relations(tmp_path: Path) -> None:
    line = deepcopy(ENTITY_LINE)  # a dog on the left, two balls: one below it, one on the right

    def said(text: str) -> dict[str, Any]:
        dog, balls = text.split().index("dog"), text.split().index("balls")
        words = ((dog, "dog", "1"), (balls, "balls", "2"))
        phrases = [{"first_word": n, "n_words": 1, "phrase": w, "chain": c, "types": ["other"]} for n, w, c in words]
        return {"text": text, "phrases": phrases}

    line["sentences"] = [said("A dog chases balls ."), said("The dog 's balls"), said("balls are held by a dog .")]
    (picture,) = open_entity_boxes("train", entity_lines(tmp_path, line))
    assert picture.names == ("dog", "ball", "ball")
    assert picture.said == (("dog",) * 3, ("ball",) * 3, ("ball",) * 3)
    assert picture.relations == tuple((0, name, ball) for name in ("chasing", "with", "holding") for ball in (1, 2))


def test_each_of_several_takes_part_with_its_nearest() -> None:
    boxes = np.array([[0, 0, 0.2, 1], [0.8, 0, 1, 1], [0, 0, 0.2, 0.1], [0.8, 0, 1, 0.1]])  # two men, two hats
    phrases = (EntityPhrase(1, ("men",), "1", ()), EntityPhrase(3, ("hats",), "2", ()))
    picture = EntityPicture("a.jpg", 9, 9, (EntitySentence("two men wearing hats", phrases),), {})
    found = entity_relations(picture, {"1": [0, 1], "2": [2, 3]}, boxes)
    assert found == [(0, "wearing", 2), (1, "wearing", 3)]
    assert entity_relations(picture, {"1": [0, 1]}, boxes) == []


def test_marks_of_several_types_and_words_between() -> None:
    sentence = parse_sentence("By [/EN#9/people/scene two men] , [/EN#0/notvisual they] rest .", "here")
    assert sentence.text == "By two men , they rest ."
    assert sentence.phrases == (
        EntityPhrase(1, ("two", "men"), "9", ("people", "scene")),
        EntityPhrase(4, ("they",), "0", ("notvisual",)),
    )
    for broken in ("[/EN#9/people two men .", "[/EN#x/people men] .", "[/EN#9 men] .", "[/EN#9/people ] ."):
        with pytest.raises(SaccadeError, match="here"):
            parse_sentence(broken, "here")


def change(path: list[Any], value: Any) -> dict[str, Any]:
    line = deepcopy(ENTITY_LINE)
    holder = line
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return line


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (change(["width"], 0), 'line 1: "width" is 0, a whole number of at least 1 was expected'),
        (change(["image"], None), 'line 1: "image" is missing, text was expected'),
        (change(["boxes"], []), "line 1.boxes is a list, a mapping was expected"),
        (change(["boxes", "1"], [[1, 1, 60, 30]]), "boxes.1[0]: the box (0, 0, 60, 30) leaves the picture of 40 × 30"),
        (change(["boxes", "1"], [[9, 1, 3, 30]]), "boxes.1[0]: the box (8, 0, 3, 30) ends before it begins"),
        (change(["boxes", "1"], [[1, 1, 3]]), "boxes.1[0] is not [xmin, ymin, xmax, ymax]"),
        (change(["sentences", 0, "phrases", 0, "n_words"], 40), "sentences[0].phrases[0]: words 0 to 39 of 12"),
        (7, "line 1 is 7, a mapping was expected"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, line: Any, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=r"entities.jsonl.gz") as error:
        list(read_entities(entity_lines(tmp_path, line)))
    assert sentence in str(error.value)


def test_splits_and_missing_files_are_named(tmp_path: Path) -> None:
    root = entity_lines(tmp_path / "lines", ENTITY_LINE)
    with pytest.raises(SaccadeError, match='no split "test"'):
        open_entity_boxes("test", root)
    (root / "images" / "a.jpg").unlink()
    with pytest.raises(SaccadeError, match=r"a.jpg is missing"):
        open_entity_boxes("train", root)
    with pytest.raises(SaccadeError, match="has no Entities"):
        open_entity_boxes("train", root / "images")
    root = entities_published(tmp_path / "published")
    write(root / "train.txt", "../a\n")
    with pytest.raises(SaccadeError, match="is not a plain name"):
        open_entity_boxes("train", root)
    (root / "train.txt").unlink()
    with pytest.raises(SaccadeError, match=r"train.txt is missing"):
        open_entity_boxes("train", root)
    assert len(list(read_entities(root))) == 1  # all of them need no lists


def test_xml_that_declares_entities_or_is_huge_is_refused(tmp_path: Path) -> None:
    root = entities_published(tmp_path)
    laughs = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;">]>'
    path = write(root / "Annotations" / "a.xml", laughs + ENTITY_XML)
    with pytest.raises(SaccadeError, match="declares entities"):
        list(read_entities(root, "train"))
    path.write_bytes(laughs.encode("utf-16") + ENTITY_XML.encode("utf-16"))
    with pytest.raises(SaccadeError, match="not UTF-8"):
        list(read_entities(root, "train"))
    path.write_text(ENTITY_XML + " " * (1 << 22))
    with pytest.raises(SaccadeError, match="more than 4 MB"):
        list(read_entities(root, "train"))
