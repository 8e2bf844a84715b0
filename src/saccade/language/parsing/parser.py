"""The structure of a caption: which words depend on which, and with it things, attributes and relations.

`load_parser("rules")` needs nothing but this package; other parsers sit behind the same door (`docs/parsing.md`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.language.parsing.scene_graph import Attribute, Object, Relation, SceneGraph, read_graph
from saccade.language.tokenise import tokenise

MAX_REMEMBERED_CAPTIONS = 1 << 16  # captions a parser keeps; they come again every epoch


@dataclass(frozen=True)
class Parse:
    """A sentence as a tree: each token has a head (-1: it is the root), a label of Universal Dependencies and a tag.

    The tokens are those of `tokenise`, so a place here is a place in `Vocabulary.encode`, less one for <start>.
    """

    tokens: tuple[str, ...]
    heads: tuple[int, ...]
    labels: tuple[str, ...]
    tags: tuple[str, ...]  # NOUN, VERB, ADJ …

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Pairs of words that depend on each other, as `TextBatch.links` wants them: <start> has place 0."""
        return tuple([(head + 1, place + 1) for place, head in enumerate(self.heads) if head >= 0])

    @cached_property
    def graph(self) -> SceneGraph:
        """Things, attributes and relations of the sentence."""
        return read_graph(self.tokens, self.heads, self.labels, self.tags)

    @property
    def objects(self) -> tuple[Object, ...]:
        """The things the sentence names."""
        return self.graph.objects

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """What it says they are like."""
        return self.graph.attributes

    @property
    def relations(self) -> tuple[Relation, ...]:
        """What it says of two of them."""
        return self.graph.relations


EMPTY = Parse((), (), (), ())


class Parser(ABC):
    """Sentences to parses. The same sentence gives the same parse; recent ones are remembered."""

    name: str

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Parse] = {}

    def parse(self, texts: Sequence[str]) -> list[Parse]:
        return self.parse_tokens([tuple(tokenise(text)) for text in texts])

    def parse_tokens(self, sentences: Sequence[tuple[str, ...]]) -> list[Parse]:
        """As `parse`, of sentences already tokenised."""
        known = self._known
        new = list(dict.fromkeys(tokens for tokens in sentences if tokens and tokens not in known))
        if len(known) + len(new) > MAX_REMEMBERED_CAPTIONS:
            current = set(sentences)
            self._known = known = {tokens: parse for tokens, parse in known.items() if tokens in current}
        if new:
            known.update(zip(new, self._parse(new), strict=True))
        return [known[tokens] if tokens else EMPTY for tokens in sentences]

    @abstractmethod
    def _parse(self, sentences: Sequence[tuple[str, ...]]) -> list[Parse]:
        """Different sentences of at least one token each."""


KINDS = {"rules": ("rules", "RuleParser"), "spacy": ("foreign", "SpacyParser"), "file": ("foreign", "FileParser")}


def load_parser(name: str = "rules") -> Parser:
    """By name: "rules", "spacy", "spacy:MODEL", or "file:PATH" (CoNLL-U, or JSON of CoreNLP).

    Raises: SaccadeError if there is no such parser, or what it needs (spaCy, a model, the file) is missing or damaged.
    """
    kind, colon, detail = name.partition(":")
    if kind not in KINDS or (kind == "rules" and colon) or (kind == "file" and not detail):
        there = "(there are: rules, spacy, spacy:MODEL, file:PATH)"
        raise SaccadeError(f'there is no parser "{name}"{did_you_mean(kind, KINDS)} {there}')
    module, class_name = KINDS[kind]
    parser: Callable[..., Parser] = getattr(import_module(f"saccade.language.parsing.{module}"), class_name)
    return parser(detail) if detail else parser()


@cache
def shared_parser(name: str = "rules") -> Parser:
    """As `load_parser`, one for the whole process: it remembers the sentences it has read, for every model."""
    return load_parser(name)
