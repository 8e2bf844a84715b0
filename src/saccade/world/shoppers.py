"""Shoppers in the world: toys on sale, users with tastes, what they did, and what they clicked on.

An item has a look (a picture of a toy: its kind, colour and material can be seen), a title, ids (item, brand, shop) and
statistics (price, exposures, clicks). Style and use stand in the title alone, and the brand is an id. `redundancy` says
how often the title also names what another modality shows: each of kind, colour, material and brand is said with this
probability, and a word that means nothing stands in its place otherwise. So a title always has seven words, and all
modalities together always say the same.

A user likes and dislikes values of these factors, is more or less put off by a price, and comes in sessions, each in a
mood for one kind, colour or style. In a session items are shown one after the other; a user clicks with the probability

    σ(Σ tastes of the item's factors + price + quality + mood − threshold)

and may put what was clicked on into the cart or buy it; some of the rest is at least looked at. All of this is a
behaviour, with its time. The first sessions are history alone, the later ones are impressions. Seeds fix everything.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from saccade.core.config import check_ranges, to_dict
from saccade.core.errors import SaccadeError, not_among
from saccade.world.catalogue import BACKGROUNDS, KINDS, LIGHTINGS, MATERIALS
from saccade.world.dice import Dice, seed_of
from saccade.world.render import render
from saccade.world.scene import Scene, Thing

GENERATOR = 1  # raised whenever the same settings would give another item, title or click
SPLITS = ("train", "dev", "test")
SHAPES = ("ball", "mug", "lamp", "hat", "car", "fish", "duck", "bear")  # kinds that are on sale
SHADES = ("red", "yellow", "green", "blue", "pink", "black")
STYLES = ("handmade", "vintage", "washable", "organic", "foldable", "glowing")
USES = ("travel", "garden", "office", "party")
BRANDS = ("Bramo", "Tundra", "Oxley", "Velm", "Norden", "Fable")
FILLERS = ("new", "classic", "deluxe", "original", "genuine", "fine", "great", "popular", "best", "super")
WORDS = {"wood": "wooden"}  # where a title names a factor otherwise than the catalogue
BEHAVIOURS = ("view", "click", "cart", "buy")
FACTORS = {  # what can be liked, and how strongly tastes differ
    "kind": (SHAPES, 1.6),
    "colour": (SHADES, 1.6),
    "material": (MATERIALS, 0.8),
    "style": (STYLES, 1.4),
    "use": (USES, 1.0),
    "brand": (BRANDS, 0.8),
}
MOODS = ("kind", "colour", "style")
MOOD, QUALITY, PRICE, THRESHOLD = 2.2, 0.5, 0.5, 2.2  # weights in the logit of a click
SESSIONS, SHOWN, WARM_UP = 6, 12, 2  # sessions of a user, items in each, sessions that are history alone
DAY, BEGIN = 86_400, 1_700_000_000  # seconds
CART, BUY, VIEW = 0.35, 0.4, 0.25  # chances: of what was clicked on, of what is in the cart, of the rest


@dataclass(frozen=True)
class ShopConfig:
    """2,000 items and 4,000 users, of whom every tenth is for dev and every tenth for test."""

    items: int = 2000
    users: int = 4000
    redundancy: float = 0.5  # how often a title says what another modality shows
    seed: int = 0
    size: int = 128  # of a picture's side, in pixels

    def __post_init__(self) -> None:
        check_ranges(self, "redundancy", "between 0 and 1")
        check_ranges(self, "items", "at least 1")
        if self.users < 10:
            raise SaccadeError(f"a shop of {self.users} users has none for dev and test: give 10 or more")

    def picture_digest(self) -> str:
        """A name for all that the pictures depend on."""
        return f"shop-{GENERATOR}-{self.seed}-{self.items}-{self.size}"

    def digest(self) -> str:
        text = json.dumps({"generator": GENERATOR, **to_dict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Draws:
    """Uniform numbers from raw generator output, the same with every version of NumPy."""

    def __init__(self, *key: int | str) -> None:
        self.bits = np.random.PCG64(seed_of(*key))

    def uniform(self, *shape: int) -> Float[np.ndarray, "*shape"]:
        raw = self.bits.random_raw(int(np.prod(shape)))
        return np.asarray((raw >> np.uint64(11)) * 2.0**-53).reshape(shape)

    def below(self, count: int, *shape: int) -> Int[np.ndarray, "*shape"]:
        return (self.uniform(*shape) * count).astype(np.int64)

    def normal(self, *shape: int) -> Float[np.ndarray, "*shape"]:
        """Sums of twelve uniform numbers, which need no transcendental function."""
        return np.asarray(self.uniform(12, *shape).sum(axis=0) - 6.0)


@dataclass(frozen=True, eq=False)
class Shop:
    """Items by row: the value of each factor, and what is not a factor."""

    config: ShopConfig
    factors: dict[str, Int[np.ndarray, " item"]]
    shop: Int[np.ndarray, " item"]
    price: Float[np.ndarray, " item"]
    quality: Float[np.ndarray, " item"]
    popularity: Float[np.ndarray, " item"]  # how often an item is shown, summed from the first on, up to 1
    titles: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.titles)

    def value(self, factor: str, item: int) -> str:
        found: str = FACTORS[factor][0][self.factors[factor][item]]
        return found

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(f"item-{n:05d}" for n in range(len(self)))

    def picture(self, item: int) -> UInt8[np.ndarray, "row column 3"]:
        """A toy in some place, under some light."""
        dice, kind = Dice(self.config.seed, "look", item), self.value("kind", item)
        height = min(0.46, 0.8 / KINDS[kind].width)
        thing = Thing(
            *(kind, self.value("colour", item), "medium", self.value("material", item)),
            facing=1 if dice.chance(0.5) else -1,
            x=dice.between(0.42, 0.58),
            y=dice.between(0.82, 0.9),
            height=height,
        )
        scene = Scene(
            self.ids[item],
            (thing,),
            background=dice.pick(BACKGROUNDS),
            lighting=dice.pick(LIGHTINGS),
            seed=dice.below(1 << 30),
        )
        return render(scene, self.config.size).image


@lru_cache(maxsize=4)
def make_shop(config: ShopConfig) -> Shop:
    draw, count = Draws(config.seed, "shop"), config.items
    factors = {name: draw.below(len(values), count) for name, (values, _) in FACTORS.items()}
    price = draw.normal(count)
    quality = draw.normal(count)
    shown = 0.1 + draw.uniform(count) ** 3
    said = Draws(config.seed, "titles")
    named = {name: said.uniform(count) < config.redundancy for name in ("brand", "colour", "material", "kind")}
    fillers = {name: said.below(len(FILLERS), count) for name in named}

    def word(name: str, item: int) -> str:
        value = FACTORS[name][0][factors[name][item]]
        return WORDS.get(value, value) if named[name][item] else FILLERS[fillers[name][item]]

    titles = tuple(
        f"{word('brand', n)} {STYLES[factors['style'][n]]} {word('colour', n)} {word('material', n)} {word('kind', n)} "
        f"for {USES[factors['use'][n]]}"
        for n in range(count)
    )
    shop = draw.below(max(count // 20, 1), count)
    return Shop(config, factors, shop, price, quality, np.cumsum(shown) / shown.sum(), titles)


@dataclass(frozen=True, eq=False)
class Shopping:
    """What every user was shown, in order, and did: column n is the n-th item shown."""

    item: Int[np.ndarray, "user shown"]
    probability: Float[np.ndarray, "user shown"]  # of a click, the truth
    clicked: Bool[np.ndarray, "user shown"]
    kind: Int[np.ndarray, "user shown"]  # of behaviour, from 1; 0: passed by
    time: Int[np.ndarray, "user shown"]  # seconds

    def users(self, split: str) -> Int[np.ndarray, " user"]:
        """Raises: SaccadeError if there is no such split."""
        if split not in SPLITS:
            raise SaccadeError(f"the world's shoppers have no split {not_among(split, SPLITS)}")
        every = np.arange(len(self.item))
        own = {"train": every % 10 < 8, "dev": every % 10 == 8, "test": every % 10 == 9}[split]
        return np.flatnonzero(own)


@lru_cache(maxsize=4)
def go_shopping(config: ShopConfig) -> Shopping:
    """Titles make no difference to what users do: at another redundancy they click alike."""
    shop, users = make_shop(config), config.users
    draw = Draws(config.seed, "users")
    tastes = {name: spread * draw.normal(users, len(values)) for name, (values, spread) in FACTORS.items()}
    thrift = 1.0 + 0.5 * draw.normal(users)
    begin = BEGIN + draw.below(90 * DAY, users)
    every = np.arange(users)
    columns: list[tuple[np.ndarray, ...]] = []
    now = begin
    for _ in range(SESSIONS):
        factor = draw.below(len(MOODS), users)
        wish = draw.uniform(users)
        now = now + (DAY * (0.5 + 6 * draw.uniform(users) ** 2)).astype(np.int64)
        for _ in range(SHOWN):
            item = np.searchsorted(shop.popularity, draw.uniform(users), side="right").clip(max=len(shop) - 1)
            logit = QUALITY * shop.quality[item] - PRICE * thrift * shop.price[item] - THRESHOLD
            for name, taste in tastes.items():
                logit = logit + taste[every, shop.factors[name][item]]
            for n, name in enumerate(MOODS):
                wanted = (wish * len(FACTORS[name][0])).astype(np.int64)
                alike = shop.factors[name][item] == wanted
                logit = logit + MOOD * ((factor == n) & alike)
            chance = 1 / (1 + np.exp(-logit))
            clicked = draw.uniform(users) < chance
            dice = draw.uniform(3, users)
            cart = clicked & (dice[0] < CART)
            kind = np.where(clicked, 2 + cart + (cart & (dice[1] < BUY)), dice[2] < VIEW)
            now = now + 5 + (draw.uniform(users) * 90).astype(np.int64)
            columns.append((item, chance, clicked, kind.astype(np.int64), now))
    return Shopping(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))


def item_statistics(config: ShopConfig) -> dict[str, Float[np.ndarray, " item"]]:
    """Price, and how often each item was shown and clicked on in the sessions that are history alone."""
    shop, shopping = make_shop(config), go_shopping(config)
    early = slice(0, WARM_UP * SHOWN)
    shown = shopping.item[:, early].ravel()
    return {
        "price": np.round(20 * np.exp(0.6 * shop.price), 2),
        "exposures": np.bincount(shown, minlength=len(shop)).astype(float),
        "clicks": np.bincount(shown, shopping.clicked[:, early].ravel(), minlength=len(shop)).astype(float),
    }
