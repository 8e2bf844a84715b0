"""Sentences from plans: the words, what a sentence means, and whether a scene makes it true.

A plan says what to mention and how; realising it on a scene gives words, phrases and meaning. The same plan realised
on a twin scene gives the same words in another binding, which is what hard distractors are.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from saccade.world.catalogue import column
from saccade.world.dice import Dice
from saccade.world.scene import Phrase, Scene, SceneRelation, Thing

# Words that mean the same, the most frequent first, by their name in the catalogue.
NOUNS, COLOUR_WORDS, SIZE_WORDS, MATERIAL_WORDS, PLACES, LIGHTS, PREPOSITIONS = (
    column(table, "words")
    for table in ("kinds", "colours", "sizes", "materials", "backgrounds", "lightings", "predicates")
)
_PLURALS = {"fish": "fish", "puppy": "puppies", "pony": "ponies", "teddy": "teddies"}
ATTRIBUTES = {"kind": NOUNS, "size": SIZE_WORDS, "colour": COLOUR_WORDS, "material": MATERIAL_WORDS}
VERBS: dict[str, tuple[tuple[str, str], ...]] = column("predicates", "verbs")  # finite verb, participle
PASSIVES: dict[str, tuple[str, ...]] = column("predicates", "passives")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def plural(noun: str) -> str:
    return _PLURALS.get(noun, noun + "s")


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def word_for(value: str, options: tuple[str, ...], seed: int) -> str:
    """The word a speaker (`seed`) always uses for `value`, the first one half of the time.

    It depends on the value, never on which thing has it: swapping two things' colours keeps a sentence's words.
    """
    roll = zlib.crc32(f"{seed}/{value}".encode()) % (2 * len(options))
    return options[roll] if roll < len(options) else options[0]


def attribute_word(thing: Thing, attribute: str, seed: int) -> str:
    """The word a speaker uses for the kind, size, colour or material of a thing."""
    value: str = getattr(thing, attribute)
    return word_for(value, ATTRIBUTES[attribute][value], seed)


@dataclass(frozen=True)
class Entity:
    """Something a caption mentions: the attributes it states, by name, and how many such things (0: any)."""

    stated: tuple[tuple[str, str], ...]
    exactly: int = 0

    def fits(self, thing: Thing) -> bool:
        return all(getattr(thing, name) == value for name, value in self.stated)


@dataclass(frozen=True)
class Meaning:
    """Entities, and relations between entities by their position here."""

    entities: tuple[Entity, ...] = ()
    claims: tuple[tuple[int, str, int], ...] = ()

    def holds(self, things: Sequence[Thing], relations: frozenset[SceneRelation]) -> bool:
        """Search for distinct things that make every claim true."""
        options = [[i for i, thing in enumerate(things) if entity.fits(thing)] for entity in self.entities]
        for entity, fitting in zip(self.entities, options, strict=True):
            if not fitting or (entity.exactly and len(fitting) != entity.exactly):
                return False
        chosen: list[int] = []

        def search(at: int) -> bool:
            if at == len(options):
                return True
            if self.entities[at].exactly > 1:  # a group is claimed to be there, and related to nothing
                chosen.append(-1)
                found = search(at + 1)
                chosen.pop()
                return found
            for i in options[at]:
                if i in chosen:
                    continue
                chosen.append(i)
                sound = all(
                    SceneRelation(chosen[s], p, chosen[o]) in relations for s, p, o in self.claims if max(s, o) == at
                )
                if sound and search(at + 1):
                    chosen.pop()
                    return True
                chosen.pop()
            return False

        return search(0)


@dataclass(frozen=True)
class Mention:
    """A thing (or several alike), and which attributes are said of it."""

    things: tuple[int, ...]
    attributes: frozenset[str]  # of colour, size, material
    definite: bool = False
    counted: bool = False  # "two red balls": exactly as many as there are


@dataclass(frozen=True)
class Plan:
    """What to say, and the seed of how to say it. Claims tie mentions by their position."""

    form: str  # list, relate, front, passive, predicate, attributes, or empty
    mentions: tuple[Mention, ...]
    claims: tuple[tuple[int, str, int], ...] = ()
    place: bool = False
    light: bool = False
    opening: bool = False  # "a picture of …"
    seed: int = 0


@dataclass
class Sentence:
    """A plan realised."""

    words: list[str] = field(default_factory=list)
    phrases: list[Phrase] = field(default_factory=list)
    meaning: Meaning = field(default_factory=Meaning)
    relations: tuple[SceneRelation, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(self.words).replace(" ,", ",")


def realise(plan: Plan, things: Sequence[Thing], scene: Scene) -> Sentence:
    """Write `plan` as it would be said of `things` (those of the scene, or a rebinding of them) in the scene."""
    return _Writer(plan, things, scene).write()


class _Writer:
    def __init__(self, plan: Plan, things: Sequence[Thing], scene: Scene) -> None:
        self.plan, self.things, self.scene = plan, things, scene
        self.dice = Dice("words", plan.seed)
        self.out = Sentence()
        self.said: set[int] = set()
        self.announced = False  # after "there is" a thing is new: "a cube", not "the cube"

    def write(self) -> Sentence:
        plan, dice = self.plan, self.dice
        place = word_for(self.scene.background, PLACES[self.scene.background], plan.seed) if plan.place else ""
        light = word_for(self.scene.lighting, LIGHTS[self.scene.lighting], plan.seed) if plan.light else ""
        setting = f"{place} {light}".strip()
        early = bool(setting) and not plan.opening and plan.form not in ("predicate", "empty") and dice.chance(0.35)
        if early:
            self.add(setting)
            if plan.form == "front" or dice.chance(0.6):
                self.add(",")
        getattr(self, f"_{plan.form}")()
        if setting and not early:
            self.add(setting)
        self.out.meaning = self._meaning()
        first = [m.things[0] if m.things else 0 for m in plan.mentions]
        self.out.relations = tuple(SceneRelation(first[s], p, first[o]) for s, p, o in plan.claims)
        return self.out

    def add(self, text: str) -> None:
        self.out.words += text.split()

    # Noun phrases

    def noun_phrase(self, at: int, bare: frozenset[str] = frozenset(), the: bool = False) -> None:
        """The mention `at`, without the attributes in `bare` (said elsewhere)."""
        mention, seed = self.plan.mentions[at], self.plan.seed
        thing = self.things[mention.things[0]]
        said = mention.attributes - bare
        several = len(mention.things) > 1
        noun = attribute_word(thing, "kind", seed)
        again = at in self.said
        alike = sum(self.things[m.things[0]].kind == thing.kind for m in self.plan.mentions) > 1
        words: list[str] = []
        tail = ""
        if not again or alike:  # a second mention needs its attributes only where the noun alone would not do
            if "material" in said and seed % 5 == 0:
                tail, said = f"made of {thing.material}", said - {"material"}
            words = [attribute_word(thing, name, seed) for name in ATTRIBUTES if name in said]
        words.append(plural(noun) if several else noun)
        if mention.counted and not again:
            words.insert(0, NUMBERS[len(mention.things)])
        elif again or the or several or (mention.definite and not self.announced):
            words.insert(0, "the")
        else:
            words.insert(0, article(words[0]))
        start = len(self.out.words)
        self.add(" ".join(words + ([tail] if tail else [])))
        self.out.phrases.append(Phrase(start, len(self.out.words), mention.things))
        self.said.add(at)

    def attribute(self, at: int, name: str) -> None:
        """A predicated attribute: "… is red", "… is made of wood"."""
        mention = self.plan.mentions[at]
        thing, seed = self.things[mention.things[0]], self.plan.seed
        start = len(self.out.words)
        self.add(f"made of {thing.material}" if name == "material" else attribute_word(thing, name, seed))
        self.out.phrases.append(Phrase(start, len(self.out.words), mention.things))

    # Relations

    def preposition(self, predicate: str) -> str:
        return word_for(predicate, PREPOSITIONS[predicate], self.plan.seed)

    def related(self, predicate: str, finite: bool) -> str:
        """The relation as the verb of a sentence ("is left of", "chases") or as a modifier ("left of", "chasing")."""
        if predicate in PREPOSITIONS:
            return ("is " if finite else "") + self.preposition(predicate)
        verbs = VERBS[predicate]
        simple, participle = verbs[self.plan.seed // 7 % len(verbs)]
        if not finite:
            return participle
        return simple if self.dice.chance(0.5) else f"is {participle}"

    # Forms of sentence

    def _empty(self) -> None:
        forms: tuple[str, ...] = (
            "there is nothing to see",
            "an empty scene",
            "nothing is",
            "there are no toys",
            "an empty picture taken",
            "no toy is",
        )
        if not self.plan.place and not self.plan.light:
            forms = ("there is nothing in the picture", "an empty scene", "there are no toys here")
        self.add(forms[self.plan.seed % len(forms)])

    def _open(self, several: bool) -> None:
        self.announced = True
        if self.plan.opening:
            self.add(self.dice.pick(("a picture of", "we see", "the photo shows", "this image shows", "you can see")))
        elif self.dice.chance(0.5):
            self.add("there are" if several else "there is")
        else:
            self.announced = False

    def _list(self) -> None:
        count = len(self.plan.mentions)
        self._open(len(self.plan.mentions[0].things) > 1)
        for i in range(count):
            if i:
                self.add("and" if i == count - 1 else ",")
            self.noun_phrase(i)

    def _relate(self) -> None:
        """One to three relations: "a cube left of a ball that is behind a cone, and a dog chases a cat"."""
        (s, predicate, o), *more = self.plan.claims
        opened = self.plan.opening or self.dice.chance(0.35)
        if self.plan.opening:
            self._open(False)
        elif opened:
            self.add("there is")
        self.announced = opened
        self.noun_phrase(s)
        self.announced = False
        self.add(self.related(predicate, finite=not opened and self.dice.chance(0.75)))
        self.noun_phrase(o)
        subject, last = s, o
        for n, (s, predicate, o) in enumerate(more):
            if s == last:
                self.add(self.dice.pick(("that", ", which")))
                self.add(self.related(predicate, finite=True))
            elif s == subject and not opened:
                self.add("and")
                self.add(self.related(predicate, finite=True))
            else:
                self.add(", and" if n or self.dice.chance(0.5) else "while")
                self.noun_phrase(s)
                self.add(self.related(predicate, finite=True))
                subject = s
            self.noun_phrase(o)
            last = o

    def _front(self) -> None:
        """ "left of the blue ball there is a red cube"."""
        s, predicate, o = self.plan.claims[0]
        self.add(self.preposition(predicate))
        self.noun_phrase(o)
        self.add(self.dice.pick(("there is", "is", "we see")))
        self.announced = True
        self.noun_phrase(s)

    def _passive(self) -> None:
        s, predicate, o = self.plan.claims[0]
        self._open(False)
        opened = bool(self.out.words) and self.out.words[-1] != ","
        self.noun_phrase(o)
        self.announced = False
        if not opened:
            self.add(self.dice.pick(("is", "is being")) if predicate != "looking at" else "is")
        self.add(word_for(predicate, PASSIVES[predicate], self.plan.seed))
        self.noun_phrase(s)

    def _predicate(self) -> None:
        """ "the cube that is left of the blue ball is red"."""
        s, predicate, o = self.plan.claims[0]
        name = sorted(self.plan.mentions[s].attributes)[self.plan.seed % len(self.plan.mentions[s].attributes)]
        self.noun_phrase(s, bare=frozenset((name,)), the=True)
        self.add(self.dice.pick(("that", "which")))
        self.add(self.related(predicate, finite=True))
        self.noun_phrase(o, the=True)
        self.add("is")
        self.attribute(s, name)

    def _attributes(self) -> None:
        """ "the cube is red and the ball is blue"."""
        shared = frozenset.intersection(*(m.attributes for m in self.plan.mentions))
        name = sorted(shared)[self.plan.seed % len(shared)]
        for i in range(len(self.plan.mentions)):
            if i:
                self.add("and" if i == len(self.plan.mentions) - 1 else ",")
            self.noun_phrase(i, bare=frozenset((name,)), the=True)
            self.add("is")
            self.attribute(i, name)

    def _meaning(self) -> Meaning:
        entities = []
        for mention in self.plan.mentions:
            thing = self.things[mention.things[0]]
            stated = tuple((n, getattr(thing, n)) for n in ATTRIBUTES if n == "kind" or n in mention.attributes)
            entities.append(Entity(stated, len(mention.things) if mention.counted else 0))
        return Meaning(tuple(entities), self.plan.claims)
