"""The words for everything in the catalogue, synonyms first to last by how often they are used."""

from __future__ import annotations

import zlib

NOUNS: dict[str, tuple[str, ...]] = {
    "cube": ("cube", "block"),
    "ball": ("ball", "sphere"),
    "cone": ("cone",),
    "cylinder": ("cylinder", "drum"),
    "pyramid": ("pyramid",),
    "star": ("star",),
    "ring": ("ring", "hoop"),
    "mug": ("mug", "cup"),
    "lamp": ("lamp", "light"),
    "table": ("table", "desk"),
    "basket": ("basket", "hamper"),
    "hat": ("hat",),
    "key": ("key",),
    "mushroom": ("mushroom", "toadstool"),
    "tree": ("tree", "fir"),
    "house": ("house", "cottage"),
    "car": ("car", "automobile"),
    "boat": ("boat", "ship"),
    "fish": ("fish",),
    "duck": ("duck", "bird"),
    "cat": ("cat", "kitten"),
    "dog": ("dog", "puppy"),
    "horse": ("horse", "pony"),
    "bear": ("bear", "teddy"),
    "robot": ("robot", "android"),
}
_PLURALS = {"fish": "fish", "puppy": "puppies", "pony": "ponies", "teddy": "teddies"}

COLOUR_WORDS: dict[str, tuple[str, ...]] = {
    "red": ("red", "crimson"),
    "orange": ("orange",),
    "yellow": ("yellow", "golden"),
    "green": ("green", "emerald"),
    "turquoise": ("turquoise", "cyan"),
    "blue": ("blue", "navy"),
    "purple": ("purple", "violet"),
    "pink": ("pink", "rosy"),
    "white": ("white", "ivory"),
    "black": ("black", "dark"),
}
SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "small": ("small", "little", "tiny"),
    "medium": ("medium-sized",),
    "large": ("large", "big", "huge"),
}
MATERIAL_WORDS: dict[str, tuple[str, ...]] = {
    "rubber": ("rubber", "matte"),
    "metal": ("metal", "shiny", "metallic"),
    "wood": ("wooden",),
    "cloth": ("cloth", "woven", "fabric"),
    "glass": ("glass", "transparent"),
}
STUFF = {"rubber": "rubber", "metal": "metal", "wood": "wood", "cloth": "cloth", "glass": "glass"}

PLACES: dict[str, tuple[str, ...]] = {
    "meadow": ("in a meadow", "on the grass", "in a field", "on the lawn"),
    "beach": ("on the beach", "on the sand", "at the seaside", "by the sea"),
    "room": ("in a room", "on the floor", "indoors"),
    "snow": ("in the snow", "on the snowy ground", "in a winter landscape"),
    "street": ("in the street", "on the pavement", "before a brick wall"),
}
LIGHTS: dict[str, tuple[str, ...]] = {
    "noon": ("on a sunny day", "at noon"),
    "sunset": ("at sunset", "in the evening"),
    "night": ("at night", "in the moonlight"),
    "overcast": ("on a cloudy day", "under a cloudy sky"),
}
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")

# After "is", after a noun, and at the head of a sentence ("left of the ball there is a cube").
PREPOSITIONS: dict[str, tuple[str, ...]] = {
    "left of": ("left of", "to the left of", "on the left side of"),
    "right of": ("right of", "to the right of", "on the right side of"),
    "in front of": ("in front of", "nearer than"),
    "behind": ("behind", "farther away than"),
    "next to": ("next to", "beside", "close to", "near"),
    "on": ("on", "on top of", "atop"),
    "under": ("under", "beneath", "below", "underneath"),
    "inside": ("inside", "in", "within"),
}
# Finite verb, participle; then the passive participle.
VERBS: dict[str, tuple[tuple[str, str], ...]] = {
    "holding": (("holds", "holding"), ("carries", "carrying")),
    "wearing": (("wears", "wearing"), ("has on", "dressed in")),
    "riding": (("rides", "riding"), ("travels on", "travelling on")),
    "chasing": (("chases", "chasing"), ("runs after", "running after"), ("follows", "following")),
    "pushing": (("pushes", "pushing"), ("shoves", "shoving")),
    "looking at": (("looks at", "looking at"), ("watches", "watching"), ("faces", "facing")),
}
PASSIVES: dict[str, tuple[str, ...]] = {
    "holding": ("held by", "carried by"),
    "wearing": ("worn by",),
    "riding": ("ridden by",),
    "chasing": ("chased by", "followed by"),
    "pushing": ("pushed by", "shoved by"),
    "looking at": ("watched by",),
}


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
