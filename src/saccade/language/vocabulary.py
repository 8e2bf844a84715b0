"""The words a model knows, and what happens to those it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from saccade.batch import TextBatch
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.language.tokenise import tokenise

PAD, START, END, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")


@dataclass(frozen=True)
class Vocabulary:
    """Words by id. Ids 0 to 3 are padding, start, end and unknown, as in the official matching code."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[:4] != SPECIAL:
            raise SaccadeError(f"a vocabulary begins with {' '.join(SPECIAL)}, not {' '.join(self.words[:4])}")
        if len(set(self.words)) != len(self.words):
            raise SaccadeError("a vocabulary holds each word once")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    @staticmethod
    def build(texts: Iterable[str], min_count: int = 4) -> Vocabulary:
        """Every word seen at least `min_count` times, most frequent first, ties in alphabetical order."""
        counts = Counter(word for text in texts for word in tokenise(text))
        kept = sorted((w for w, n in counts.items() if n >= min_count), key=lambda w: (-counts[w], w))
        return Vocabulary((*SPECIAL, *kept))

    def id_of(self, word: str) -> int:
        """The id of a word, or that of <unk>."""
        return self._ids.get(word, UNKNOWN)

    def unknown(self, text: str) -> list[str]:
        """The words of `text` that the model has never seen."""
        return [word for word in tokenise(text) if word not in self._ids]

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        """Word ids with <start> and <end> around them, and the words themselves.

        Raises: SaccadeError if there are no words.
        """
        words = tokenise(text)
        if not words:
            raise SaccadeError("the caption is empty: give at least one word")
        ids = [self.id_of(word) for word in words]
        return [START, *ids, END], [SPECIAL[START], *words, SPECIAL[END]]

    def batch(self, texts: Sequence[str]) -> TextBatch:
        """Encode and pad several sentences."""
        encoded = [self.encode(text) for text in texts]
        return TextBatch.of([ids for ids, _ in encoded], [words for _, words in encoded])

    def check(self, text: str) -> list[str]:
        """The unknown words of a sentence. Raises: SaccadeError if it has no words, or none that is known."""
        words = [word for word in tokenise(text) if any(map(str.isalnum, word))]  # a full stop says nothing
        if not words:
            raise SaccadeError("the caption is empty: give at least one word")
        if not any(word in self._ids for word in words):
            raise SaccadeError(f'the model knows none of the words of "{text}"')
        return self.unknown(text)

    def to_json(self) -> dict[str, Any]:
        return {"words": list(self.words)}

    @staticmethod
    def from_json(value: Any, source: str = "the vocabulary") -> Vocabulary:
        """Our own layout, or the official matching code's {word2idx, idx2word, idx}."""
        if isinstance(value, dict) and isinstance(value.get("words"), list):
            words = tuple(map(str, value["words"]))
        elif isinstance(value, dict) and isinstance(value.get("word2idx"), dict):
            word_of = {i: word for word, i in value["word2idx"].items() if type(i) is int}
            if sorted(word_of) != list(range(len(value["word2idx"]))):
                raise SaccadeError(f"{source}: the ids of word2idx are not 0, 1, 2, …")
            words = tuple(word_of[i] for i in range(len(word_of)))
        else:
            raise SaccadeError(f'{source} is no vocabulary: expected a "words" list or an official "word2idx" table')
        try:
            return Vocabulary(words)
        except SaccadeError as error:
            raise SaccadeError(f"{source}: {error}") from error

    def save(self, path: Path | str) -> None:
        write_json(path, self.to_json())

    @staticmethod
    def load(path: Path | str) -> Vocabulary:
        return Vocabulary.from_json(read_json(path), str(path))
