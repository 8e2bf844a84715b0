"""Trees labelled as spaCy's English models do (ClearNLP), turned into Universal Dependencies.

There a preposition stands between two words ("dog" → "on" → "grass") and "is" between a thing and what it is. In
Universal Dependencies the words with meaning are joined directly, which is what matching words with regions wants.
"""

from __future__ import annotations

from collections.abc import Sequence

RENAMED = {
    "nsubjpass": "nsubj:pass", "csubjpass": "csubj:pass", "dobj": "obj", "dative": "iobj", "poss": "nmod:poss",
    "auxpass": "aux:pass", "relcl": "acl:relcl", "npadvmod": "obl", "prt": "compound:prt", "neg": "advmod",
    "quantmod": "advmod", "predet": "det:predet", "oprd": "xcomp", "preconj": "cc", "intj": "discourse", "meta": "dep",
    "ROOT": "root", "complm": "mark", "possessive": "case", "num": "nummod", "number": "compound", "rcmod": "acl:relcl",
    "nn": "compound", "partmod": "acl", "infmod": "acl",
}  # fmt: skip
FOREIGN = frozenset(("pobj", "dobj", "prep", "nsubjpass", "auxpass", "poss", "relcl"))  # labels that tell such trees
_NOUNS = frozenset(("NOUN", "PROPN", "PRON", "NUM", "DET"))


def universal(
    heads: Sequence[int], labels: Sequence[str], tags: Sequence[str], is_be: Sequence[bool]
) -> tuple[list[int], list[str]]:
    """Heads and labels after the change; `is_be` marks the forms of "be"."""
    tree = _Tree(list(heads), list(labels), tags)
    for place, label in enumerate(labels):
        if label in ("prep", "agent") or (label in ("dative", "conj", "ROOT", "pcomp") and tags[place] == "ADP"):
            tree.turn_preposition(place)
    for place, be in enumerate(is_be):
        if be and not tree.labels[place].startswith("aux"):
            tree.turn_copula(place)
    for place, label in enumerate(tree.labels):
        if label == "cc":
            tree.move_conjunction(place)
    changed = [RENAMED.get(label, label) for label in tree.labels]
    return tree.heads, ["dep" if label in ("prep", "pobj", "pcomp", "agent", "") else label for label in changed]


class _Tree:
    def __init__(self, heads: list[int], labels: list[str], tags: Sequence[str]) -> None:
        self.heads, self.labels, self.tags = heads, labels, tags

    def _below(self, place: int, *wanted: str) -> list[int]:
        return [p for p, head in enumerate(self.heads) if head == place and (not wanted or self.labels[p] in wanted)]

    def _take_place(self, place: int, other: int, label: str) -> None:
        """`other`, which hangs on `place`, goes where that was; `place` and the rest hang on it."""
        self.heads[other], self.labels[other] = self.heads[place], label
        for child in self._below(place):
            if child != other:
                self.heads[child] = other
        self.heads[place] = other

    def turn_preposition(self, place: int) -> None:
        nouns, clauses = self._below(place, "pobj"), self._below(place, "pcomp")
        head, label = self.heads[place], self.labels[place]
        after_noun = head >= 0 and self.tags[head] in _NOUNS
        if nouns:
            as_noun = "root" if head < 0 else "conj" if label == "conj" else "nmod" if after_noun else "obl"
            self._take_place(place, nouns[0], as_noun)
            self.labels[place] = "case"
        elif clauses and self.tags[clauses[0]] in ("VERB", "AUX"):
            self._take_place(place, clauses[0], "root" if head < 0 else "acl" if after_noun else "advcl")
            self.labels[place] = "mark"
        elif self._below(place, "prep"):  # "out" → "of" → noun: the inner one is turned first
            inner = self._below(place, "prep")[0]
            self.turn_preposition(inner)
            if self.labels[inner] == "case":
                noun = self.heads[inner]
                self._take_place(place, noun, "root" if head < 0 else "nmod" if after_noun else "obl")
                self.labels[place] = "case"
        elif label == "prep":
            self.labels[place] = "advmod"

    def turn_copula(self, place: int) -> None:
        said = self._below(place, "acomp", "attr")
        if self._below(place, "expl"):  # "there is a dog"
            for thing in said:
                self.labels[thing] = "nsubj"
            return
        if not said and not self._below(place, "dobj", "xcomp"):
            said = [p for p in self._below(place, "obl") if p > place]
        if said:
            self._take_place(place, said[0], self.labels[place])
            self.labels[place] = "cop"

    def move_conjunction(self, place: int) -> None:
        """ "and" belongs to what follows it."""
        joined = [p for p in self._below(self.heads[place], "conj") if p > place]
        if joined:
            self.heads[place] = joined[0]
