"""Captions are true, different, tied to things, and come with false sentences of the same words."""

from __future__ import annotations

import itertools
from collections import Counter

from caption_reader import check_phrases, relations_read

from saccade.language import tokenise
from saccade.world import Scene
from saccade.world.captions import caption_scene
from saccade.world.dice import Dice
from saccade.world.sample import sample_scene

SCENES = [sample_scene(Dice(5, "captions", i), f"s{i}") for i in range(160)]
TOLD = [(scene, caption_scene(scene, Dice(5, "words", i), 5)) for i, scene in enumerate(SCENES)]


def test_every_picture_has_five_different_captions() -> None:
    for _, captions in TOLD:
        assert len({c.text for c in captions}) == 5


def test_an_empty_scene_has_captions_too() -> None:
    captions = caption_scene(Scene("empty", background="beach"), Dice("empty"), 5)
    assert len({c.text for c in captions}) == 5
    assert all(not c.phrases and c.distractor is None for c in captions)


def test_phrases_are_true_of_their_things() -> None:
    for scene, captions in TOLD:
        for caption in captions:
            check_phrases(caption, scene)


def test_relations_are_true_as_read_from_the_text() -> None:
    read = 0
    for scene, captions in TOLD:
        for caption in captions:
            found = relations_read(caption)
            assert set(found) <= set(scene.relations), (caption.text, found)
            assert set(found) == set(caption.relations), (caption.text, found, caption.relations)
            read += len(found)
    assert read > 500


def test_words_are_what_the_tokeniser_makes_of_the_text() -> None:
    for _, captions in TOLD:
        for caption in captions:
            words = tokenise(caption.text)
            assert words == caption.text.replace(",", " ,").split()
            assert all(0 <= p.start < p.end <= len(words) for p in caption.phrases)


def test_distractors_have_the_same_words_in_another_order() -> None:
    distracted = 0
    for _, captions in TOLD:
        for caption in captions:
            if caption.distractor is not None:
                assert caption.distractor != caption.text
                assert Counter(tokenise(caption.distractor)) == Counter(tokenise(caption.text))
                distracted += 1
    assert distracted > 0.5 * 5 * len(TOLD)


def test_up_to_three_relations_are_told_and_many_predicates() -> None:
    counts = Counter(len(c.relations) for _, captions in TOLD for c in captions)
    assert set(counts) == {0, 1, 2, 3}
    assert len({r.predicate for _, captions in TOLD for c in captions for r in c.relations}) >= 10


def test_articles_agree() -> None:
    for _, captions in TOLD:
        for caption in captions:
            words = tokenise(caption.text)
            for word, following in itertools.pairwise(words):
                if word in ("a", "an"):
                    assert (word == "an") == (following[0] in "aeiou"), caption.text


def test_the_vocabulary_is_of_the_promised_size() -> None:
    words = {word for _, captions in TOLD for c in captions for word in tokenise(c.text)}
    for i in range(350):
        scene = sample_scene(Dice(6, "vocabulary", i), "v")
        words |= {word for c in caption_scene(scene, Dice(6, "v", i), 5) for word in tokenise(c.text)}
    assert 150 <= len(words) <= 300
