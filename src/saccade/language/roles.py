"""Semantic roles: what happens in a sentence, and who does what to whom, where, when and how.

A role graph has three kinds of nodes: the event, which is the sentence; its actions, which are its verbs; and entities,
phrases that play a role for an action: who acts (ARG0), what is acted on (ARG1), to whom or into what (ARG2), where
(ARGM-LOC), in which direction (ARGM-DIR), when (ARGM-TMP), how (ARGM-MNR) … A phrase that plays two roles is two nodes.
A sentence without verbs has its noun phrases as entities, of role NOUN.

`parsing/roles.py` reads the graph off dependency trees. `read_role_graphs` takes those of an external tagger, in the
layout of HGR's authors, {sentence: [{node: {role, spans, words}}, [[action, entity, role], …]]}, or as a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.language.parsing.parser import Parser, shared_parser
from saccade.language.parsing.roles import ROOT, RoleGraph, RoleNode, join_clauses, rule_roles, split_clauses
from saccade.language.tokenise import tokenise

ROLES = (
    *("V", "ARG1", "ARG0", "ARG2", "ARG3", "ARG4", "ARGM-LOC", "ARGM-MNR", "ARGM-TMP", "ARGM-DIR", "ARGM-ADV"),
    *("ARGM-PRP", "ARGM-PRD", "ARGM-COM", "ARGM-MOD", "NOUN"),
)  # in the order of the released code, whose role vectors are rows of a table


def role_number(role: str) -> int:
    """Continued and referring arguments (C-ARG1, R-ARG0) are as the argument itself; what is not known is a NOUN."""
    plain = role.removeprefix("C-").removeprefix("R-")
    return ROLES.index(plain if plain in ROLES else "NOUN")


class RoleTables(NamedTuple):
    """Role graphs as a model reads them; the slots of actions come first, then those of entities."""

    role_words: Float[Tensor, "text slot word"]
    roles: Int[Tensor, "text slot"]
    edges: Float[Tensor, "text node node"]


def role_tables(
    graphs: Sequence[RoleGraph], actions: int, entities: int, words: int, longest: int, event_listens: bool = False
) -> RoleTables:
    """The first so many actions and entities of each graph, whose words are at places 1 to `words` − 1 (<start> is 0).

    A node that begins after the `longest` words is left out. Every action hears the event and its own entities, every
    entity its actions; a row of edges sums to one. The event hears nobody, but with `event_listens` its actions.
    """
    count = actions + entities
    spans = torch.zeros(len(graphs), count, words)
    roles = torch.zeros(len(graphs), count, dtype=torch.long)
    edges = torch.zeros(len(graphs), 1 + count, 1 + count)
    for text, graph in enumerate(graphs):
        slots: dict[int, int] = {}
        free = {True: iter(range(actions)), False: iter(range(actions, count))}
        for number, node in enumerate(graph.nodes):
            within = [place + 1 for place in node.places if place < longest and place + 1 < words]
            slot = next(free[node.is_action], None) if within else None
            if slot is None:
                continue
            slots[number] = slot
            spans[text, slot, within] = 1
            roles[text, slot] = role_number(node.role)
            if node.is_action:
                edges[text, slot + 1, 0] = 1
                if event_listens:
                    edges[text, 0, slot + 1] = 1
        for action, entity, _ in graph.edges:
            if action in slots and entity in slots:
                one, other = slots[action] + 1, slots[entity] + 1
                edges[text, one, other] = edges[text, other, one] = 1
    return RoleTables(spans, roles, edges / edges.sum(dim=2, keepdim=True).clamp(min=1))


# From other tools


def read_role_graphs(path: Path | str) -> dict[str, RoleGraph]:
    """Role graphs by sentence. Raises: SaccadeError, with the sentence, if a graph is not as the layout has it."""
    return dict(listed_role_graphs(read_json(Path(path)), path))


def listed_role_graphs(value: Any, path: Path | str) -> list[tuple[str, RoleGraph]]:
    """Every sentence of such a file with its graph, in order."""
    if isinstance(value, dict) and isinstance(value.get("captions"), list):
        value = value["captions"]
    if isinstance(value, list):
        entries = [(entry.get("sent"), entry) if isinstance(entry, dict) else (None, {}) for entry in value]
        pairs: list[tuple[Any, Any]] = [(text, [entry.get("nodes"), entry.get("edges")]) for text, entry in entries]
    else:
        pairs = list(value.items()) if isinstance(value, dict) else []
    if not pairs or not all(isinstance(sentence, str) for sentence, _ in pairs):
        raise SaccadeError(f"{path}: role graphs by sentence were expected, {{sentence: [nodes, edges]}}")
    return [(sentence, _read_graph(sentence, given, f'{path}: "{sentence}"')) for sentence, given in pairs]


def _read_graph(sentence: str, given: Any, where: str) -> RoleGraph:
    shaped = isinstance(given, list | tuple) and len(given) == 2
    nodes, edges = given if shaped else (None, None)
    if not isinstance(nodes, dict) or not isinstance(edges, list):
        raise SaccadeError(f"{where}: [nodes, edges] was expected, a mapping and a list")
    tokens, numbers = tuple(sentence.split()), dict[str, int]()
    found: list[RoleNode] = []
    for name, node in nodes.items():
        role = node.get("role") if isinstance(node, Mapping) else None
        places = node.get("spans") if isinstance(node, Mapping) else None
        if not isinstance(role, str) or not isinstance(places, list):
            raise SaccadeError(f'{where}: node {name} needs a "role" and its "spans", the places of its words')
        if not all(type(place) is int and 0 <= place < len(tokens) for place in places):
            raise SaccadeError(f"{where}: node {name} has places that its {len(tokens)} words do not have")
        if role != ROOT and places:
            numbers[name] = len(found)
            found.append(RoleNode(role, tuple(places)))
    joined = []
    for edge in edges:
        if not isinstance(edge, list | tuple) or len(edge) != 3 or not all(isinstance(part, str) for part in edge):
            raise SaccadeError(f"{where}: an edge is [action, entity, role], not {edge!r}")
        if not {edge[0], edge[1]} <= nodes.keys():
            raise SaccadeError(f"{where}: the edge {edge!r} joins nodes that are not there")
        if edge[0] in numbers and edge[1] in numbers:
            joined.append((numbers[edge[0]], numbers[edge[1]], edge[2]))
    return RoleGraph(tokens, tuple(found), tuple(joined))


def carried_over(graph: RoleGraph, tokens: tuple[str, ...]) -> RoleGraph | None:
    """The same graph over our tokens; None where the letters differ, so that it is of another sentence."""
    theirs = [place for place, word in enumerate(graph.tokens) for _ in word]
    ours = [place for place, word in enumerate(tokens) for _ in word]
    if "".join(graph.tokens).lower() != "".join(tokens).lower():
        return None
    at: dict[int, set[int]] = {}
    for mine, other in zip(ours, theirs, strict=True):
        at.setdefault(other, set()).add(mine)
    moved = [
        RoleNode(node.role, tuple(sorted({mine for place in node.places for mine in at[place]})))
        for node in graph.nodes
    ]
    return RoleGraph(tokens, tuple(moved), graph.edges)


class RoleReader:
    """Sentences to role graphs; those of a file where it has them, else by the rules.

    Our own parser reads clause by clause: it is made for captions of one clause.
    """

    def __init__(self, parser: Parser | str = "rules", file: Path | str | None = None) -> None:
        self.parser = shared_parser(parser) if isinstance(parser, str) else parser
        self.known: dict[str, RoleGraph] = {}
        self.found = self.missed = 0
        for sentence, graph in (read_role_graphs(file) if file is not None else {}).items():
            self.known["".join(sentence.split()).lower()] = graph

    def read(self, texts: Sequence[str]) -> list[RoleGraph]:
        return [self._graph(tuple(tokenise(text))) for text in texts]

    def _graph(self, tokens: tuple[str, ...]) -> RoleGraph:
        given = self.known.get("".join(tokens).lower())
        graph = None if given is None else carried_over(given, tokens)
        self.found, self.missed = self.found + (graph is not None), self.missed + (graph is None)
        if graph is not None:
            return graph
        if self.parser.name != "rules":
            return rule_roles(self.parser.parse_tokens([tokens])[0])
        return join_clauses(tokens, split_clauses(tokens, self._says), self.parser)

    def _says(self, tokens: tuple[str, ...]) -> bool:
        """Whether these words are a clause of their own: somebody does something."""
        graph = rule_roles(self.parser.parse_tokens([tokens])[0])
        return any(graph.nodes[action].places and role in ("ARG0", "ARG1") for action, _, role in graph.edges)


@cache
def shared_roles(name: str = "rules") -> RoleReader:
    """By name: a parser ("rules", "spacy", "file:PATH" of trees), or "roles:PATH", a file of role graphs."""
    kind, colon, path = name.partition(":")
    if kind == "roles" and not path:
        raise SaccadeError("parser=roles:PATH names a file of role graphs")
    return RoleReader(file=path) if kind == "roles" and colon else RoleReader(name)
