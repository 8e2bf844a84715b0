"""From dependency trees to a role graph: actions, and the phrases that play a role for them.

Words for the order of events ("then", "before", "after", "while") cut a sentence into clauses, whose trees are read one
by one. In a tree, every verb is an action; its subject, its objects, what hangs on it by a preposition, and its adverbs
are entities, whose role follows from verb and preposition (`roles` in `words.yaml`). "A man and a woman" are one
entity; a clause never is a part of one. How often that is right is told in `docs/results/videos.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saccade.language import caption_words as tables
from saccade.language.caption_words import WORDS, singular, word_table
from saccade.language.parsing.parser import Parse, Parser
from saccade.language.parsing.scene_graph import collapse_prepositions

ACTION, ROOT = "V", "ROOT"
TABLES = {name: word_table(words) for name, words in WORDS["roles"].items()}


@dataclass(frozen=True)
class RoleNode:
    """An action or an entity: its role, and the places of its words."""

    role: str
    places: tuple[int, ...]

    @property
    def is_action(self) -> bool:
        return self.role == ACTION


@dataclass(frozen=True)
class RoleGraph:
    """The event is all `tokens`; an edge goes from an action to an entity, both by their number among the nodes."""

    tokens: tuple[str, ...]
    nodes: tuple[RoleNode, ...] = ()
    edges: tuple[tuple[int, int, str], ...] = ()

    def words(self, node: RoleNode) -> str:
        return " ".join(self.tokens[place] for place in node.places)

    def to_json(self) -> list[Any]:
        """As HGR's authors write it: [nodes, edges]; the event is node 0."""
        every = list(range(len(self.tokens)))
        nodes: dict[str, Any] = {"0": {"role": ROOT, "spans": every, "words": list(self.tokens)}}
        for number, node in enumerate(self.nodes, start=1):
            words = [self.tokens[place] for place in node.places]
            nodes[str(number)] = {"role": node.role, "spans": list(node.places), "words": words}
        return [nodes, [[str(action + 1), str(entity + 1), role] for action, entity, role in self.edges]]


@dataclass(frozen=True)
class _Clause:
    """Words from `start` to `end`, the place of a "then" before them, and clauses that say when they happen."""

    start: int
    end: int
    then: tuple[int, int] | None = None
    when: tuple[tuple[int, int], ...] = ()  # with the word that begins them


def split_clauses(tokens: tuple[str, ...], says: Callable[[tuple[str, ...]], bool]) -> list[_Clause]:
    """Where words for the order of events join clauses: "A, then B", "before B, A", "A while B"."""
    return _split(tokens, 0, len(tokens), says)


def _split(tokens: tuple[str, ...], start: int, end: int, says: Callable[[tuple[str, ...]], bool]) -> list[_Clause]:
    for place in range(start + 1, end - 1):
        if tokens[place] == "then":
            before = place
            while before > start and tokens[before - 1] in (",", "and", ";"):
                before -= 1
            joined = before < place and (says(tokens[place + 1 : end]) or _acts(tokens, place + 1))
            if joined and says(tokens[start:before]):
                first, *rest = _split(tokens, place + 1, end, says)
                return [*_split(tokens, start, before, says), replace(first, then=(place, place + 1)), *rest]
    if tokens[start:end] and tokens[start] in TABLES["marks"] and "," in tokens[start:end]:
        comma = tokens.index(",", start, end)
        if says(tokens[start + 1 : comma]) and says(tokens[comma + 1 : end]):
            main = _split(tokens, comma + 1, end, says)
            first = replace(main[0], when=(*main[0].when, (start, comma)))
            return [first, *main[1:], *_split(tokens, start + 1, comma, says)]
    for place in range(end - 2, start, -1):
        if tokens[place] in TABLES["marks"] and says(tokens[place + 1 : end]) and says(tokens[start:place]):
            main = _split(tokens, start, place, says)
            last = replace(main[-1], when=(*main[-1].when, (place, end)))
            return [*main[:-1], last, *_split(tokens, place + 1, end, says)]
    return [_Clause(start, end)]


def _acts(tokens: tuple[str, ...], place: int) -> bool:
    """Whether a verb stands here, so that the clause has no subject of its own: "and then leaves"."""
    return place < len(tokens) and tables.base_form(tokens[place]) in tables.VERB_STEMS


def join_clauses(tokens: tuple[str, ...], clauses: Sequence[_Clause], parser: Parser) -> RoleGraph:
    nodes: dict[RoleNode, int] = {}
    edges: dict[tuple[int, int, str], None] = {}
    subject: RoleNode | None = None
    for clause in clauses:
        own = tokens[clause.start : clause.end]
        begun = clause.then is not None and subject is not None and _acts(tokens, clause.start)
        graph = rule_roles(parser.parse_tokens([("it", *own) if begun else own])[0])
        shift = clause.start - begun
        moved = [RoleNode(node.role, tuple(place + shift for place in node.places)) for node in graph.nodes]
        if begun:  # "it" was lent to it, and stands for the subject before
            assert subject is not None
            moved = [subject if node.places == (shift,) else node for node in moved]
        number = [nodes.setdefault(node, len(nodes)) for node in moved]
        edges |= {(number[action], number[entity], role): None for action, entity, role in graph.edges}
        actions = [number[n] for n, node in enumerate(moved) if node.is_action]
        subject = next((moved[entity] for _, entity, role in graph.edges if role in ("ARG0", "ARG1")), subject)
        for when in (*([clause.then] if clause.then else []), *clause.when) if actions else ():
            entity = nodes.setdefault(RoleNode("ARGM-TMP", tuple(range(*when))), len(nodes))
            edges[actions[0], entity, "ARGM-TMP"] = None
    return RoleGraph(tokens, tuple(nodes), tuple(edges))


_NOT_ACTIONS = ("aux", "aux:pass", "cop", "amod", "compound", "case", "mark", "fixed", "nmod:poss", "cc")
_NOMINAL = ("NOUN", "PROPN", "PRON", "NUM")
_IN_PHRASE = ("det", "amod", "nummod", "compound", "flat", "fixed", "nmod", "nmod:poss", "case", "advmod", "det:predet")
_SHARED = ("conj", "advcl", "xcomp", "parataxis")  # clauses that may leave out the subject of the clause above


def rule_roles(parse: Parse) -> RoleGraph:
    """The role graph of a tree of any parser that labels as Universal Dependencies do."""
    heads, labels = collapse_prepositions(parse.tokens, parse.heads, parse.labels, parse.tags)
    return _Roles(parse.tokens, heads, labels, parse.tags).graph()


class _Roles:
    def __init__(self, tokens: Sequence[str], heads: Sequence[int], labels: Sequence[str], tags: Sequence[str]) -> None:
        self.tokens, self.heads, self.labels, self.tags = tuple(tokens), heads, labels, tags
        self.below: list[list[int]] = [[] for _ in tokens]
        for place, head in enumerate(heads):
            if head >= 0:
                self.below[head].append(place)
        self.particles: list[int] = []  # of the action that is read
        self.nodes: dict[RoleNode, int] = {}
        self.edges: dict[tuple[int, int, str], None] = {}

    def graph(self) -> RoleGraph:
        for place in range(len(self.tokens)):
            if self.is_action(place):
                self.add_action(place)
        covered = {at for node in self.nodes for at in node.places}
        for place, tag in enumerate(self.tags):
            if tag in ("NOUN", "PROPN") and place not in covered and self.labels[place] != "compound":
                phrase = self.phrase(place, nested=False)
                self.number("NOUN", phrase)
                covered.update(phrase)
        return RoleGraph(self.tokens, tuple(self.nodes), tuple(self.edges))

    def number(self, role: str, places: Iterable[int]) -> int:
        return self.nodes.setdefault(RoleNode(role, tuple(sorted(places))), len(self.nodes))

    def children(self, place: int, *labels: str) -> list[int]:
        return [child for child in self.below[place] if self.labels[child] in labels]

    def is_action(self, place: int) -> bool:
        if self.labels[place] == "cop":
            return True
        verb = self.tags[place] == "VERB" or (self.tags[place] == "AUX" and bool(self.children(place, "nsubj")))
        return verb and self.labels[place] not in _NOT_ACTIONS

    def add_action(self, place: int) -> None:
        """An action with all that plays a role for it; "is" takes the place of what it says."""
        copula = self.labels[place] == "cop"
        verb = self.heads[place] if copula else place
        self.particles = self.parts(place)
        action = self.number(ACTION, [place, *self.particles])
        for role, phrase in self.arguments(verb, copula):
            self.edges[action, self.number(role, phrase), role] = None

    def parts(self, verb: int) -> list[int]:
        """Words right after a verb that are part of it: "up" of "picks up", "after" of "runs after"."""
        after = verb + 1
        if after >= len(self.tokens):
            return []
        word, hangs = self.tokens[after], self.heads[after] == verb
        if hangs and self.labels[after] in ("compound:prt", "advmod") and word in TABLES["particles"]:
            return [after]
        if self.labels[after] != "case":
            return []
        over_to = word in TABLES["particles"] and self.tokens[after + 1 : after + 2] == ("to",)
        taken = f"{tables.base_form(self.tokens[verb])}-{word}" in TABLES["with_preposition"]
        return [after] if taken or over_to else []

    def arguments(self, verb: int, copula: bool) -> Iterable[tuple[str, Iterable[int]]]:
        base = tables.base_form(self.tokens[verb])
        passive = bool(self.children(verb, "nsubj:pass", "aux:pass")) or self.is_reduced_passive(verb)
        subject, objects = self.subject(verb), self.children(verb, "obj")
        if subject is not None:
            actor = [
                place for place in self.phrase(subject) if place not in self.case(subject)
            ]  # "down a slope that …"
            becomes = base in TABLES["becomes"] and bool(self.states(verb))
            affected = copula or passive or becomes or (not objects and self.undergoes(base, subject))
            yield "ARG1" if affected or self.tokens[verb] in tables.BE else "ARG0", actor
        if copula:
            yield "ARG2", self.phrase(verb, clause=True)
        given = self.given(verb, base) if len(objects) == 1 else []
        for thing in given:
            yield "ARG1", self.phrase(thing)
        for child in sorted(self.below[verb]):
            label = self.labels[child]
            if label in ("obj", "iobj"):
                second = label == "iobj" or passive or bool(given)
                yield "ARG2" if second else "ARG1", self.phrase(child)
            elif label in ("obl", "nmod") and self.tags[child] != "VERB" and not (copula and label == "nmod"):
                phrase = [place for place in self.phrase(child) if place not in self.particles]
                bare = self.particles == self.case(child)  # "picks up a ball"
                yield "ARG1" if bare and self.particles else self.oblique(base, passive, child), phrase
            elif label == "advmod" and child not in self.particles and not (copula and child > verb):
                yield self.adverb(self.tokens[child]), [child]
            elif label == "aux" and self.tokens[child] in TABLES["modals"]:
                yield "ARGM-MOD", [child]
            elif child in self.states(verb):
                yield "ARG2" if base in TABLES["becomes"] else "ARGM-PRD", self.phrase(child)
            elif label == "advcl" and any(
                self.tokens[mark] in TABLES["marks"] for mark in self.children(child, "mark")
            ):
                yield "ARGM-TMP", self.everything(child)

    def subject(self, verb: int) -> int | None:
        """Who does it: the clause's own subject, that of the clause it hangs on, or the noun that it describes."""
        own = self.children(verb, "nsubj", "nsubj:pass")
        label, head = self.labels[verb], self.heads[verb]
        if own:
            relative = self.tokens[own[0]] in tables.RELATIVES
            return head if relative and label.startswith("acl") and head >= 0 else own[0]
        if head >= 0 and label.startswith("acl"):
            return head
        return self.subject(head) if head >= 0 and label in _SHARED and self.tags[head] in ("VERB", "AUX") else None

    def states(self, verb: int) -> list[int]:
        """ "turns red"."""
        return [child for child in self.children(verb, "xcomp") if self.tags[child] == "ADJ"]

    def everything(self, head: int) -> list[int]:
        """All words below one."""
        return sorted([head, *(place for child in self.below[head] for place in self.everything(child))])

    def given(self, verb: int, base: str) -> list[int]:
        """ "gives a woman a flower": a second bare noun phrase, where the first may be whom it is given to."""
        receiver = self.children(verb, "obj")[0]
        after = max(self.phrase(receiver)) + 1
        loose = [p for p in self.children(verb, "parataxis") if self.tags[p] in _NOMINAL and not self.case(p)]
        return [p for p in loose if base in TABLES["gives"] and min(self.phrase(p)) == after][:1]

    def is_reduced_passive(self, verb: int) -> bool:
        """ "a ball thrown by a man"."""
        done = not self.tokens[verb].endswith("ing") and not self.children(verb, "nsubj", "aux", "cop")
        return done and self.labels[verb] == "acl"

    def undergoes(self, verb: str, subject: int) -> bool:
        """Things fall and roll, and so does a man who falls; a man who rolls does it himself."""
        animate = singular(self.tokens[subject]) in tables.ANIMATE or self.tags[subject] == "PRON"
        return verb in TABLES["befalls"] or (verb in TABLES["moves_or_changes"] and not animate)

    def oblique(self, verb: str, passive: bool, noun: int) -> str:
        words = [self.tokens[place] for place in self.case(noun) if place not in self.particles]
        case = " ".join(words)
        if case == "by" and passive:
            return "ARG0"
        if case == "to" and verb in TABLES["gives"]:
            return "ARG2"
        if verb in TABLES["puts"] and case in TABLES["into"]:
            return "ARG2"
        if self.tokens[noun] in TABLES["times"]:
            return "ARGM-TMP"
        if case == "with":
            return "ARGM-COM" if singular(self.tokens[noun]) in tables.ANIMATE else "ARGM-MNR"
        if case == "by":  # "by hand", "by the sea"
            return "ARGM-LOC" if self.children(noun, "det", "nmod:poss") else "ARGM-MNR"
        if case == "before" and singular(self.tokens[noun]) not in TABLES["occasions"]:
            return "ARGM-LOC"
        first = words[0] if words else ""
        for role in ("ARGM-TMP", "ARGM-DIR", "ARGM-PRP", "ARGM-PRD", "ARGM-MNR"):
            if first in TABLES[role]:
                return role
        return "ARGM-LOC" if words else "ARGM-ADV"

    @staticmethod
    def adverb(word: str) -> str:
        for role in ("ARGM-TMP", "ARGM-DIR", "ARGM-LOC"):
            if word in TABLES[f"adverbs {role}"]:
                return role
        return "ARGM-MNR" if word.endswith("ly") or word in TABLES["adverbs ARGM-MNR"] else "ARGM-ADV"

    def case(self, noun: int) -> list[int]:
        """The words of its preposition."""
        found = self.children(noun, "case")
        return sorted(word for case in found for word in (case, *self.children(case, "fixed")))

    def phrase(self, head: int, nested: bool = True, clause: bool = False) -> list[int]:
        """The words of a noun phrase: preposition, article, what describes it, and with `nested` what hangs on it and
        what it is joined with; never clauses. `clause`: of what "is" says, without the clause's own words."""
        places, waiting = [], [head]
        while waiting:
            place = waiting.pop()
            places.append(place)
            for child in self.below[place]:
                label = self.labels[child]
                inside = (
                    label in _IN_PHRASE
                    or (label == "conj" and self.tags[child] not in ("VERB", "AUX"))
                    or label == "cc"
                )
                if not nested and label in ("nmod", "conj", "cc", "case"):
                    continue
                if clause and place == head and (label in ("nsubj", "advmod") or child < self.start_of(head)):
                    continue
                if inside and not (label == "cc" and self.joins_clauses(child)):
                    waiting.append(child)
        every = range(min(places), max(places))
        return sorted({*places, *(place for place in every if self.tags[place] == "DET")})

    def start_of(self, head: int) -> int:
        """Where what "is" says begins: after "is"."""
        return max(self.children(head, "cop"), default=-1)

    def joins_clauses(self, conjunction: int) -> bool:
        return self.tags[self.heads[conjunction]] in ("VERB", "AUX")
