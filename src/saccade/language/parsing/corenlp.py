"""Trees from Stanford CoreNLP's JSON: `sentences` with `tokens` and `basicDependencies` (or enhanced ones)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saccade.errors import SaccadeError
from saccade.files import read_json
from saccade.language.parsing.conllu import ForeignSentence, check_tree, universal_tag

GRAPHS = ("basicDependencies", "basic-dependencies", "enhancedPlusPlusDependencies", "enhancedDependencies")
_KEPT = frozenset(("nmod:poss", "acl:relcl", "nsubj:pass", "aux:pass", "compound:prt", "det:predet", "csubj:pass"))


def read_corenlp(path: Path) -> Iterator[ForeignSentence]:
    """The sentences of one annotated document, or of a list of documents."""
    value = read_json(path)
    documents = value if isinstance(value, list) else [value]
    for number, document in enumerate(documents):
        where = str(path) if isinstance(value, dict) else f"{path}: [{number}]"
        sentences = _field(document, "sentences", list, where)
        for n, sentence in enumerate(sentences):
            yield _sentence(sentence, f"{where}: sentences[{n}]")


def _field(value: Any, name: str, kind: type, where: str) -> Any:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        words = {list: "a list", int: "a number", str: "text"}[kind]
        raise SaccadeError(f'{where}: "{name}" is missing or not {words}, as CoreNLP writes it')
    return found


def _sentence(value: Any, where: str) -> ForeignSentence:
    tokens = _field(value, "tokens", list, where)
    if not tokens:
        raise SaccadeError(f'{where}: "tokens" is empty')
    graph = next((name for name in GRAPHS if isinstance(value.get(name), list)), None)
    if graph is None:
        raise SaccadeError(f"{where}: none of {', '.join(GRAPHS)} is there: annotate with depparse")
    heads, labels = [-2] * len(tokens), ["dep"] * len(tokens)
    for n, link in enumerate(value[graph]):
        at = f"{where}.{graph}[{n}]"
        head, place = _field(link, "governor", int, at), _field(link, "dependent", int, at)
        if not 0 <= head <= len(tokens) or not 1 <= place <= len(tokens) or head == place:
            raise SaccadeError(f"{at}: governor {head} and dependent {place} are not two of {len(tokens)} tokens")
        label = _plain(_field(link, "dep", str, at))
        # Enhanced graphs give words several heads: the first that leads away from the word is kept.
        if heads[place - 1] == -2 and label != "ref" and not _leads(heads, head - 1, place - 1):
            heads[place - 1], labels[place - 1] = head - 1, label
    root = next((place for place, head in enumerate(heads) if head == -1), -1)
    if root < 0:
        raise SaccadeError(f"{where}.{graph}: no word has governor 0, the root")
    heads = [root if head == -2 else head for head in heads]
    check_tree(where, heads)
    forms = tuple(_form(token, f"{where}.tokens[{n}]") for n, token in enumerate(tokens))
    tags = tuple(universal_tag(str(token.get("pos", "X")), label) for token, label in zip(tokens, labels, strict=True))
    return ForeignSentence(where, forms, tuple(heads), tuple(labels), tags)


def _form(token: Any, where: str) -> str:
    original = token.get("originalText") if isinstance(token, dict) else None
    return str(original) if original else str(_field(token, "word", str, where))


def _plain(label: str) -> str:
    """ "nmod:on" → nmod, but "nmod:poss" stays."""
    label = {"ROOT": "root", "nsubjpass": "nsubj:pass", "auxpass": "aux:pass", "dobj": "obj"}.get(label, label)
    return label if label in _KEPT else label.split(":")[0]


def _leads(heads: list[int], start: int, goal: int) -> bool:
    """Whether going up from `start` meets `goal`."""
    while start >= 0:
        if start == goal:
            return True
        start = heads[start]
    return False
