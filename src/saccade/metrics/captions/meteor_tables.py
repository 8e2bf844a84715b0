"""What METEOR knows of English beside its formula: function words, synonyms, paraphrases.

Of our own there are only the function words. Synonyms come from WordNet, paraphrases from METEOR's table; both are read
from where the user has them, and without them their stages are left out:

- the PyPI package `pycocoevalcap` carries `meteor-1.5.jar`, an archive with WordNet's sets and METEOR's own word lists,
  and the table of paraphrases: with it the figures are METEOR's. Nothing of it is run, and no Java is needed;
- a folder of WordNet's data base gives the synonyms alone.
"""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.language.caption_words import WORDS, word_table
from saccade.language.wordnet import WordNet, is_wordnet, read_wordnet

JAR = "meteor-1.5.jar"
PARAPHRASES = "data/paraphrase-en.gz"
MAX_PHRASE_WORDS = 7  # in METEOR's table
FUNCTION_WORDS = word_table(WORDS["function_words"])


@dataclass(frozen=True)
class MeteorTables:
    """The knowledge that METEOR uses. As it stands, what needs no file."""

    function_words: frozenset[str] = FUNCTION_WORDS
    abbreviations: frozenset[str] = frozenset(("v", "vs"))  # keep their dot, whatever follows
    wordnet: WordNet = field(default_factory=WordNet)
    paraphrases: Path | None = None
    place: Path | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        """What counts as a match."""
        there = {"synonym": bool(self.wordnet), "paraphrase": self.paraphrases is not None}
        return "exact", "stem", *(stage for stage, known in there.items() if known)

    def describe(self) -> str:
        """Which stages and tables METEOR uses, for people."""
        used = f"meteor matches by: {', '.join(self.stages)}"
        if "paraphrase" in self.stages:
            return f"{used} ({self.place})"
        return f"{used}; for the figures of METEOR 1.5 itself `pip install --no-deps pycocoevalcap` (read, not run)"


def load_meteor_tables(place: str = "auto") -> MeteorTables:
    """What a folder holds; `auto`: what is installed; `none`: nothing.

    Raises: SaccadeError if there is no such folder.
    """
    found = find_meteor_tables() if place == "auto" else None if place == "none" else Path(place)
    if place not in ("auto", "none") and not Path(place).is_dir():
        raise SaccadeError(f"--meteor {place}: there is no such folder (auto and none are the other answers)")
    return MeteorTables() if found is None else read_meteor_tables(found)


def find_meteor_tables() -> Path | None:
    """A folder that `read_meteor_tables` can read, if one is installed: $SACCADE_METEOR, pycocoevalcap, WordNet."""
    given = os.environ.get("SACCADE_METEOR")
    if given:
        return Path(given)
    places = [folder / "meteor" for folder in _package("pycocoevalcap")]
    places += [found for folder in _package("wn") for found in sorted(folder.glob("data/wordnet-*"))]
    places += [Path(home) / "dict" for home in (os.environ.get("WNHOME"),) if home]
    places += [Path.home() / "nltk_data" / "corpora" / "wordnet", Path("/usr/share/wordnet")]
    return next((place for place in places if (place / JAR).is_file() or is_wordnet(place)), None)


def read_meteor_tables(place: Path) -> MeteorTables:
    """From a folder with meteor-1.5.jar (and data/paraphrase-en.gz), or from one of WordNet's data base."""
    if is_wordnet(place):
        return MeteorTables(wordnet=read_wordnet(place), place=place)
    jar = place / JAR
    if not jar.is_file():
        raise SaccadeError(
            f"{place} holds neither {JAR} (as the PyPI package pycocoevalcap has it, in its folder meteor/) "
            "nor WordNet's index.noun, index.verb, index.adj and index.adv"
        )
    sets = _pairs(jar, "synonym/english.synsets")
    bases: dict[str, list[str]] = {}
    for base, forms in _pairs(jar, "synonym/english.exceptions"):
        for form in forms.split():
            bases.setdefault(form, []).append(base)
    try:
        numbered = {word: frozenset(map(int, found.split())) for word, found in sets}
    except ValueError as error:
        raise SaccadeError(f"{jar}, synonym/english.synsets: numbers of synonym sets were expected") from error
    paraphrases = place / PARAPHRASES
    prefixes = [line.split() for line in _lines(jar, "nonbreaking/english.prefixes") if not line.startswith("#")]
    return MeteorTables(
        frozenset(_lines(jar, "function/english.words")),
        frozenset(words[0] for words in prefixes if len(words) == 1),
        WordNet(numbered, {form: tuple(found) for form, found in bases.items()}),
        paraphrases if paraphrases.is_file() else None,
        place,
    )


def read_paraphrases(path: Path, phrases: Collection[str]) -> dict[str, list[str]]:
    """Those entries of the table both sides of which are among `phrases`: phrase → its paraphrases.

    The table has five million entries, three lines each (probability, phrase, paraphrase), and a set of captions needs
    few of them.
    """
    wanted = {phrase.encode() for phrase in phrases}
    found: dict[str, list[str]] = {}
    with explain_os_errors(path, "read"):
        try:
            with gzip.open(path) as file:
                left: list[bytes] = [b""]
                while block := file.read(1 << 24):
                    lines = (left[-1] + block).split(b"\n")
                    lines = left[:-1] + lines
                    whole = (len(lines) - 1) // 3 * 3
                    for one, other in zip(lines[1:whole:3], lines[2:whole:3], strict=True):
                        if one in wanted and other in wanted:
                            found.setdefault(one.decode(), []).append(other.decode())
                    left = lines[whole:]
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise SaccadeError(f"{path} is not a whole gzip file: copy it again") from error
    if left != [b""]:
        raise SaccadeError(f"{path} is no table of paraphrases: three lines an entry were expected")
    return found


def _package(name: str) -> list[Path]:
    spec = find_spec(name)  # looks for it, imports nothing
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _lines(jar: Path, name: str) -> list[str]:
    with explain_os_errors(jar, "read"):
        try:
            with zipfile.ZipFile(jar) as archive:
                return archive.read(name).decode("utf-8").splitlines()
        except (KeyError, zipfile.BadZipFile, zlib.error, UnicodeDecodeError, NotImplementedError) as error:
            raise SaccadeError(f"{jar} is not the archive of METEOR 1.5: {name} could not be read from it") from error


def _pairs(jar: Path, name: str) -> list[tuple[str, str]]:
    lines = _lines(jar, name)
    return list(zip(lines[::2], lines[1::2], strict=False))
