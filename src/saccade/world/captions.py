"""Captions drawn for scenes, true of them: whole sentences, captions of twins, and phrases of one thing.

A caption is a plan that is kept when true, with a distractor of the same words where one is false. Twins are two scenes
alike in everything but one binding, with captions of each that are false of the other. Region phrases belong to one box
each ("a blue ball left of a cone"), for dense captioners; like captions, they say only what the scene graph has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from saccade.world import grammar, sample
from saccade.world.catalogue import ACTS, PREDICATES, column, possible
from saccade.world.dice import Dice
from saccade.world.scene import Scene, SceneCaption, SceneRelation, Thing

SWAPS = (("colour",), ("material",), ("size",), ("kind",), ("kind", "colour", "size", "material"))

_PREDICATE_WEIGHTS = dict.fromkeys(PREDICATES, 1.5) | column("predicates", "said")


@dataclass(frozen=True)
class Focus:
    """Two things whose exchanged attributes a caption must mention."""

    first: int
    second: int
    attributes: tuple[str, ...]
    only: bool = False  # say just these of the two, whatever else would distinguish them


def caption_scene(scene: Scene, dice: Dice, count: int, given: Sequence[SceneCaption] = ()) -> tuple[SceneCaption, ...]:
    """`count` different captions, all true, after those already `given`."""
    captions = list(given[:count])
    texts = {c.text for c in captions}
    relations = frozenset(scene.relations)
    for attempt in range(60 * count):
        if len(captions) == count:
            break
        plan = draw_plan(scene, dice)
        sentence = grammar.realise(plan, scene.things, scene)
        if sentence.text in texts or not sentence.meaning.holds(scene.things, relations):
            continue
        texts.add(sentence.text)
        strict = attempt < 30 * count  # a bare scene has few sentences: then even one without a distractor will do
        captions.append(caption_of(sentence, _distractor(plan, sentence, scene, relations, dice) if strict else None))
    return tuple(captions)


def caption_of(sentence: grammar.Sentence, distractor: str | None) -> SceneCaption:
    return SceneCaption(sentence.text, tuple(sentence.phrases), distractor, sentence.relations)


def draw_plan(scene: Scene, dice: Dice, focus: Focus | None = None) -> grammar.Plan:
    """Something to say of the scene; with a focus, something that says which of the two has which attribute."""
    seed = dice.below(1 << 30)
    if focus and "kind" in focus.attributes:  # the nouns suffice: both get the same few attributes
        few = tuple(a for a, p in (("colour", 0.8), ("size", 0.15), ("material", 0.3)) if dice.chance(p))
        focus = replace(focus, attributes=few, only=True)
    place, light, opening = dice.chance(0.2), dice.chance(0.1), dice.chance(0.2)
    if scene.background in ("room", "street"):
        light = light and scene.lighting == "night"  # elsewhere no sky shows the weather
    if not scene.things:
        return grammar.Plan("empty", (), place=place or dice.chance(0.7), light=light, seed=seed)
    form = dice.weighted(
        ("relate", "front", "passive", "predicate", "list", "attributes"), (10, 3, 3, 2, 4, 1.5 if focus else 0.7)
    )
    if form in ("list", "attributes") or not scene.relations:
        mentions = _listed(scene, dice, focus, form)
        if form == "attributes" and frozenset.intersection(*(m.attributes for m in mentions)):
            return grammar.Plan("attributes", mentions, seed=seed)
        return grammar.Plan("list", mentions, place=place, light=light, opening=opening, seed=seed)
    allowed = grammar.PASSIVES if form == "passive" else grammar.PREPOSITIONS if form == "front" else PREDICATES
    relations = _drawn_relations(scene, dice, focus, tuple(allowed), 1 if form != "relate" else 0)
    if not relations:
        form = "relate"
        relations = _drawn_relations(scene, dice, focus, PREDICATES, 0)
    if not relations:
        return grammar.Plan(
            "list", _listed(scene, dice, focus, "list"), place=place, light=light, opening=opening, seed=seed
        )
    order = list(dict.fromkeys(i for r in relations for i in (r.subject, r.object)))
    mentions = tuple(_mention(scene, i, dice, focus) for i in order)
    claims = tuple((order.index(r.subject), r.predicate, order.index(r.object)) for r in relations)
    if form == "predicate":
        if not mentions[0].attributes:
            form = "relate"
        place = light = False
    return grammar.Plan(form, mentions, claims, place, light, opening and form in ("relate", "passive"), seed)


def _drawn_relations(
    scene: Scene, dice: Dice, focus: Focus | None, allowed: Sequence[str], count: int
) -> list[SceneRelation]:
    """One to three relations that hang together; with a focus, the first ties the two or the chain meets both."""
    count = count or dice.weighted((1, 2, 3), (6, 4, 1.5))
    first = [r for r in scene.relations if r.predicate in allowed]
    if focus:
        pair = {focus.first, focus.second}
        tied = [r for r in first if {r.subject, r.object} == pair]
        first = tied if tied and dice.chance(0.8) else [r for r in first if pair & {r.subject, r.object}]
    if not first:
        return []
    chosen = [_weighted_relation(first, dice)]
    while len(chosen) < count:
        said = {i for r in chosen for i in (r.subject, r.object)}
        pairs = {frozenset((r.subject, r.object)) for r in chosen}
        more = [
            r
            for r in scene.relations
            if frozenset((r.subject, r.object)) not in pairs and (r.subject in said or r.object not in said)
        ]
        chained = [r for r in more if r.subject in (chosen[-1].object, chosen[0].subject)]
        if not more:
            break
        chosen.append(_weighted_relation(chained if chained and dice.chance(0.8) else more, dice))
    return chosen


def _weighted_relation(relations: Sequence[SceneRelation], dice: Dice) -> SceneRelation:
    """First which predicate, then which of its relations: the many "left of" must not drown the few "riding"."""
    predicates = list(dict.fromkeys(r.predicate for r in relations))
    predicate = dice.weighted(predicates, [_PREDICATE_WEIGHTS[p] for p in predicates])
    return dice.pick([r for r in relations if r.predicate == predicate])


def _listed(scene: Scene, dice: Dice, focus: Focus | None, form: str) -> tuple[grammar.Mention, ...]:
    """A few things to name; things alike are sometimes counted together."""
    if focus:
        pair = dice.shuffled((focus.first, focus.second))
        return tuple(_mention(scene, i, dice, focus) for i in pair)
    order = dice.shuffled(range(len(scene.things)))
    if form == "attributes":
        return tuple(_mention(scene, i, dice, None, say="colour") for i in order[: dice.pick((1, 2))])
    mentions: list[grammar.Mention] = []
    said: set[int] = set()
    for i in order[: dice.weighted((1, 2, 3), (2, 4, 2))]:
        if i in said:
            continue
        thing = scene.things[i]
        alike = tuple(n for n, t in enumerate(scene.things) if t.kind == thing.kind)
        same = tuple(n for n in alike if scene.things[n].colour == thing.colour)
        if len(alike) > 1 and dice.chance(0.6) and not said & set(alike):
            group, attributes = (same, frozenset(("colour",))) if len(same) > 1 else (alike, frozenset[str]())
            mentions.append(grammar.Mention(group, attributes, counted=True))
            said |= set(alike)
        else:
            mentions.append(_mention(scene, i, dice, None))
            said.add(i)
    return tuple(mentions)


def _mention(scene: Scene, i: int, dice: Dice, focus: Focus | None, say: str = "") -> grammar.Mention:
    """Some attributes of a thing, enough (most of the time) to distinguish it from the others."""
    chances = {"colour": 0.72, "size": 0.22, "material": 0.28}
    said = {name for name, p in chances.items() if dice.chance(p)} | ({say} if say else set())
    if focus and i in (focus.first, focus.second):
        said = set(focus.attributes) if focus.only else said | set(focus.attributes)
    thing = scene.things[i]
    if thing.size == "medium" and not focus and dice.chance(0.7):
        said.discard("size")  # what is of ordinary size is seldom said to be

    def rivals() -> list[Thing]:
        return [
            t
            for n, t in enumerate(scene.things)
            if n != i and t.kind == thing.kind and all(getattr(t, a) == getattr(thing, a) for a in said)
        ]

    if dice.chance(0.85) and not (focus and focus.only and i in (focus.first, focus.second)):
        for name in dice.shuffled(("colour", "material", "size")):
            if any(getattr(t, name) != getattr(thing, name) for t in rivals()):
                said.add(name)
    return grammar.Mention((i,), frozenset(said), definite=not rivals() and dice.chance(0.3))


def rebind(things: Sequence[Thing], i: int, j: int, attributes: Sequence[str]) -> tuple[Thing, ...]:
    """The things with these attributes of two of them exchanged."""
    changed = list(things)
    changed[i] = replace(things[i], **{a: getattr(things[j], a) for a in attributes})
    changed[j] = replace(things[j], **{a: getattr(things[i], a) for a in attributes})
    return tuple(changed)


def _distractor(
    plan: grammar.Plan, sentence: grammar.Sentence, scene: Scene, relations: frozenset[SceneRelation], dice: Dice
) -> str | None:
    """The same words bound otherwise, false of the scene yet possible in the world."""
    single = [m.things[0] for m in plan.mentions if len(m.things) == 1]
    swaps = [
        (i, j, swap)
        for n, i in enumerate(single)
        for j in single[n + 1 :]
        for swap in SWAPS
        if any(getattr(scene.things[i], a) != getattr(scene.things[j], a) for a in swap)
    ]
    words = Counter(sentence.words)
    for i, j, swap in dice.shuffled(swaps):
        things = rebind(scene.things, i, j, swap)
        if not _believable(plan, things):
            continue
        other = grammar.realise(plan, things, scene)
        if (
            other.words != sentence.words
            and Counter(other.words) == words
            and not other.meaning.holds(scene.things, relations)
        ):
            return other.text
    return None


def _believable(plan: grammar.Plan, things: Sequence[Thing]) -> bool:
    """Whether the sentence could be true of some ordinary scene, so that text alone never gives it away."""
    first = [m.things[0] for m in plan.mentions]
    for mention in plan.mentions:
        thing = things[mention.things[0]]
        if "colour" in mention.attributes and (thing.colour, thing.kind) in sample.HELD_OUT_COLOURS:
            return False
    for s, predicate, o in plan.claims:
        a, b = things[first[s]].kind, things[first[o]].kind
        if not possible(a, predicate, b) or sample.held_out_act(a, predicate, b):
            return False
    return True


SWAP_WEIGHTS = (4, 2, 2, 3, 4)  # of captions.SWAPS


def acts_of(scene: Scene) -> tuple[SceneRelation, ...]:
    """The relations that put things where they are, without those that follow from them."""
    implied = {(r.subject, r.object) for r in scene.relations if r.predicate == "riding"}
    implied |= {(r.object, r.subject) for r in scene.relations if r.predicate == "wearing"}
    return tuple(
        r
        for r in scene.relations
        if r.predicate in sample.ACT_SIZES and not (r.predicate == "on" and (r.subject, r.object) in implied)
    )


def twin_pair(
    dice: Dice, names: tuple[str, str], captions: int, hidden: float
) -> tuple[tuple[Scene, tuple[SceneCaption, ...]], tuple[Scene, tuple[SceneCaption, ...]]]:
    """Two scenes, each with `captions` sentences true of it and false of the other, the same words in both."""
    while True:
        scene = sample.sample_scene(dice, names[0], sample.Wish(least=2, most=6, hidden=hidden))
        for _ in range(4):
            found = make_twin(scene, dice, names[1], hidden)
            if found is None:
                continue
            twin, focus = found
            pairs = _paired_captions(scene, twin, focus, dice, captions)
            if len(pairs) == captions:
                one = replace(scene, twin=names[1]), tuple(a for a, _ in pairs)
                return one, (twin, tuple(b for _, b in pairs))


def make_twin(scene: Scene, dice: Dice, name: str, hidden: float) -> tuple[Scene, Focus] | None:
    """Exchange attributes of two things, or their places, if the result is an ordinary scene."""
    swap = dice.weighted(SWAPS, SWAP_WEIGHTS)
    acts = acts_of(scene)
    count = len(scene.things)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    for i, j in dice.shuffled(pairs):
        a, b = scene.things[i], scene.things[j]
        if any(getattr(a, name) == getattr(b, name) for name in swap[:1]):
            continue
        if swap == ("material",) and (scene.lighting == "night" or "small" in (a.size, b.size)):
            continue  # too little to see it by
        things = rebind(scene.things, i, j, swap)
        if sample.is_novel(things, acts) or not all(_suits(act, things) for act in acts):
            continue
        placed = sample.arrange(things, acts)
        if sample.fits(placed, acts, hidden):
            twin = replace(scene, id=name, things=placed, relations=sample.relate(placed, acts), twin=scene.id)
            return twin, Focus(i, j, swap)
    return None


def _suits(act: SceneRelation, things: Sequence[Thing]) -> bool:
    a, b = things[act.subject], things[act.object]
    first, second = sample.ACT_SIZES[act.predicate]
    if act.predicate in ("inside", "wearing") and a.size == b.size:
        return False
    if act.predicate == "wearing" and {a.size, b.size} == {"small", "large"}:
        return False
    return possible(a.kind, act.predicate, b.kind) and a.size in first and b.size in second


def _paired_captions(
    scene: Scene, twin: Scene, focus: Focus, dice: Dice, count: int
) -> list[tuple[SceneCaption, SceneCaption]]:
    """Plans that read differently on the two scenes, in the same words, each true of its own scene only."""
    here, there = frozenset(scene.relations), frozenset(twin.relations)
    pairs: list[tuple[SceneCaption, SceneCaption]] = []
    texts: set[str] = set()
    for attempt in range(30 * count):
        if len(pairs) == count or (attempt > 10 * count and not pairs):
            break
        plan = draw_plan(scene, dice, focus)
        one, other = grammar.realise(plan, scene.things, scene), grammar.realise(plan, twin.things, twin)
        if (
            {one.text, other.text} & texts
            or one.words == other.words
            or Counter(one.words) != Counter(other.words)
            or not one.meaning.holds(scene.things, here)
            or one.meaning.holds(twin.things, there)
            or not other.meaning.holds(twin.things, there)
            or other.meaning.holds(scene.things, here)
        ):
            continue
        texts |= {one.text, other.text}
        pairs.append((caption_of(one, other.text), caption_of(other, one.text)))
    return pairs


RELATED = 0.35  # of the phrases say where the thing is or what it does
ATTEMPTS = 8  # draws for each phrase wanted: a bare thing has few names


def region_phrases(scene: Scene, thing: int, count: int = 3) -> tuple[str, ...]:
    """At most `count` different phrases, at least one; the same for the same scene, on every machine."""
    dice = Dice("phrases", scene.id, scene.seed, thing)
    phrases: dict[str, None] = {}
    for _ in range(ATTEMPTS * count):
        phrases[_phrase(scene, thing, dice)] = None
        if len(phrases) == count:
            break
    return tuple(phrases)


def _phrase(scene: Scene, thing: int, dice: Dice) -> str:
    speaker = dice.below(1 << 30)
    said = _noun_phrase(scene.things[thing], speaker, dice, ("colour", 0.85), ("size", 0.3), ("material", 0.4))
    relations = [
        r for r in scene.relations if r.subject == thing or (r.object == thing and r.predicate in grammar.PASSIVES)
    ]
    if not relations or not dice.chance(RELATED):
        return said
    doing = [r for r in relations if r.predicate in ACTS]  # shown inside the box itself, not beside it
    relation = dice.pick(doing if doing and dice.chance(0.7) else relations)
    other = relation.object if relation.subject == thing else relation.subject
    return (
        f"{said} {_tie(relation, thing, speaker)} {_noun_phrase(scene.things[other], speaker, dice, ('colour', 0.5))}"
    )


def _noun_phrase(thing: Thing, speaker: int, dice: Dice, *chances: tuple[str, float]) -> str:
    """The thing's noun with some of its attributes, sizes first: "a small yellow wooden horse"."""
    said = {"kind"} | {name for name, chance in chances if dice.chance(chance)}
    if thing.size == "medium" and dice.chance(0.8):  # what is of ordinary size is seldom said to be
        said.discard("size")
    words = [
        grammar.attribute_word(thing, name, speaker) for name in ("size", "colour", "material", "kind") if name in said
    ]
    return " ".join([grammar.article(words[0]), *words])


def _tie(relation: SceneRelation, thing: int, speaker: int) -> str:
    """The relation as it follows the thing's noun: "left of", "chasing", or "chased by" where the thing suffers it."""
    if relation.subject != thing:
        return grammar.word_for(relation.predicate, grammar.PASSIVES[relation.predicate], speaker)
    if relation.predicate in grammar.PREPOSITIONS:
        return grammar.word_for(relation.predicate, grammar.PREPOSITIONS[relation.predicate], speaker)
    verbs = grammar.VERBS[relation.predicate]
    return verbs[speaker % len(verbs)][1]
