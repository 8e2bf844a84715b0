"""Phrases of single things: true of their thing, and the same every time."""

from __future__ import annotations

from saccade.world import Scene, World
from saccade.world.captions import region_phrases
from saccade.world.grammar import COLOUR_WORDS, MATERIAL_WORDS, NOUNS, PASSIVES, PREPOSITIONS, SIZE_WORDS, VERBS

ATTRIBUTES = {"kind": NOUNS, "colour": COLOUR_WORDS, "size": SIZE_WORDS, "material": MATERIAL_WORDS}
MEANING = {
    word: (name, value) for name, table in ATTRIBUTES.items() for value, words in table.items() for word in words
}
TIES = {
    **{words: (name, True) for name, options in PREPOSITIONS.items() for words in options},
    **{words[1]: (name, True) for name, options in VERBS.items() for words in options},
    **{words: (name, False) for name, options in PASSIVES.items() for words in options},
}


def read(phrase: str) -> tuple[dict[str, str], tuple[str, bool] | None, dict[str, str]]:
    """What is said of the thing, the tie to another (its name; whether the thing is the subject), and of the other."""
    tie = next((t for t in sorted(TIES, key=len, reverse=True) if f" {t} a" in phrase), None)
    first, _, second = phrase.partition(f" {tie} ") if tie else (phrase, "", "")
    said = [{MEANING[w][0]: MEANING[w][1] for w in part.split()[1:]} for part in (first, second)]
    return said[0], TIES[tie] if tie else None, said[1]


def fits(said: dict[str, str], scene: Scene, thing: int) -> bool:
    return all(getattr(scene.things[thing], name) == value for name, value in said.items())


def test_every_phrase_is_true_of_its_thing(world: World) -> None:
    part, tied, bare = world.split("train"), 0, 0
    for i in range(60):
        scene = part.scene(i)
        for thing in range(len(scene.things)):
            phrases = region_phrases(scene, thing)
            assert 1 <= len(phrases) == len(set(phrases)) <= 3
            for phrase in phrases:
                said, tie, other = read(phrase)
                assert "kind" in said
                assert fits(said, scene, thing), phrase
                if tie is None:
                    bare += 1
                    continue
                tied += 1
                name, subject = tie
                related = [
                    (r.subject, r.object) if subject else (r.object, r.subject)
                    for r in scene.relations
                    if r.predicate == name
                ]
                assert any(own == thing and fits(other, scene, far) for own, far in related), phrase
    assert tied > 50
    assert bare > tied


def test_the_same_scene_has_the_same_phrases(world: World) -> None:
    scene = world.split("dev").scene(2)
    assert region_phrases(scene, 0) == region_phrases(Scene.from_json(scene.to_json()), 0)
    assert len(region_phrases(scene, 0, count=1)) == 1
