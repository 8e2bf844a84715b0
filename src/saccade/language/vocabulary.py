"""The words a model knows, what happens to those it does not, and scene graphs in these words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from saccade.batch import END, PAD, START, UNKNOWN, SceneGraphBatch, TextBatch, padded_ids
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.language.parsing.scene_graph import SceneGraph
from saccade.language.tokenise import tokenise

SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")  # the words of ids 0 to 3


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
        """Every word that occurs at least `min_count` times, most frequent first, ties in alphabetical order."""
        counts = Counter(word for text in texts for word in tokenise(text))
        kept = sorted((w for w, n in counts.items() if n >= min_count), key=lambda w: (-counts[w], w))
        return Vocabulary((*SPECIAL, *kept))

    @property
    def mask_id(self) -> int:
        """What stands for a hidden word."""
        return UNKNOWN

    def id_of(self, word: str) -> int:
        """The id of a word, or that of <unk>."""
        return self._ids.get(word, UNKNOWN)

    def unknown(self, text: str) -> list[str]:
        """The words of `text` that the model does not know."""
        return [word for word in tokenise(text) if word not in self._ids]

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        """Word ids with <start> and <end> around them, and the words themselves.

        Raises: SaccadeError if there are no words.
        """
        words = tokenise(text)
        if not words:
            raise SaccadeError("the text is empty: give at least one word")
        ids = [self.id_of(word) for word in words]
        return [START, *ids, END], [SPECIAL[START], *words, SPECIAL[END]]

    def batch(self, texts: Sequence[str], ends: bool = True) -> TextBatch:
        """Encode and pad several sentences; with `ends`, <start> and <end> are among their words."""
        own = slice(None) if ends else slice(1, -1)
        encoded = [self.encode(text) for text in texts]
        return TextBatch.of([ids[own] for ids, _ in encoded], [words[own] for _, words in encoded])

    def check(self, text: str) -> list[str]:
        """The unknown words of a sentence. Raises: SaccadeError if it has no words, or none that is known."""
        words = [word for word in tokenise(text) if any(map(str.isalnum, word))]  # a full stop says nothing
        if not words:
            raise SaccadeError("the text is empty: give at least one word")
        if not any(word in self._ids for word in words):
            raise SaccadeError(f'the model knows none of the words of "{text}"')
        return self.unknown(text)

    def to_json(self) -> dict[str, Any]:
        return {"words": list(self.words)}

    @staticmethod
    def from_json(value: Any, source: str = "the vocabulary") -> Vocabulary:
        """Our own layout, of words or of pieces, or the official matching code's {word2idx, idx2word, idx}."""
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
            if isinstance(value.get("pieces"), dict):
                from saccade.language.wordpieces import WordPieces  # late: it builds on this file

                return WordPieces(words, bool(value["pieces"].get("lower", True)))
            return Vocabulary(words)
        except SaccadeError as error:
            raise SaccadeError(f"{source}: {error}") from error

    def save(self, path: Path | str) -> None:
        write_json(path, self.to_json())

    @staticmethod
    def load(path: Path | str) -> Vocabulary:
        return Vocabulary.from_json(read_json(path), str(path))


SMALL = frozenset(("of", "to", "in", "on", "at", "by", "with", "from", "the", "a"))  # in predicates of several words
Triple = tuple[int, int, int]  # the places of subject and object, and the word of their relation


def graph_words(graphs: Sequence[SceneGraph], vocabulary: Vocabulary) -> SceneGraphBatch:
    """Things, relations and attributes as word ids; a relation of several words has that of the most telling one."""
    objects, relations, attributes = [], [], []
    for graph in graphs:
        place = {thing: n for n, thing in enumerate(graph.objects)}
        objects.append([vocabulary.id_of(thing.name) if thing.name else PAD for thing in graph.objects])
        relations.append(
            [(place[r.subject], place[r.object], content_word(r.predicate, vocabulary)) for r in graph.relations]
        )
        said: dict[int, list[int]] = {}
        for attribute in graph.attributes:
            said.setdefault(place[attribute.object], []).append(vocabulary.id_of(attribute.word))
        attributes.append(dict(sorted(said.items())))
    return padded_graphs(objects, relations, attributes)


def content_word(predicate: Sequence[str], vocabulary: Vocabulary) -> int:
    """ "in front of" → front, "jumps over" → jumps: not the small words, and of others the rarest.

    Ids grow as words get rarer.
    """
    large = [word for word in predicate if word not in SMALL] or predicate
    return max((vocabulary.id_of(word) for word in large), default=UNKNOWN)


def padded_graphs(
    objects: Sequence[Sequence[int]], relations: Sequence[Sequence[Triple]], attributes: Sequence[dict[int, list[int]]]
) -> SceneGraphBatch:
    """One batch of ragged graphs; the attributes of a graph are lists of words by the place of their thing."""
    triples, triple_mask = padded_ids([[number for triple in own for number in triple] for own in relations])
    described, described_mask = padded_ids([list(own) for own in attributes])
    words, word_mask = padded_ids([said for own in attributes for said in own.values()])
    table = words.new_zeros(*described.shape, words.shape[1])
    table[described_mask] = words
    table_mask = word_mask.new_zeros(*described.shape, words.shape[1])
    table_mask[described_mask] = word_mask
    return SceneGraphBatch(
        *padded_ids(objects),
        triples.view(len(triples), -1, 3) if triples.numel() else triples.new_zeros(len(triples), 0, 3),
        triple_mask[:, ::3],
        described,
        table,
        table_mask,
    )
