"""An F-score of what captions say: things, what they are like, what they do, how they stand to each other.

The idea is SPICE's (Anderson, Fernando, Johnson, Gould; ECCV 2016): a caption is right if what it says is, however it
says it. Candidate and references are parsed into facts, all references of a picture into one set of them:

    F = 2·P·R / (P + R),  P = |C ∩ R| / |C|,  R = |C ∩ R| / |R|

    (dog,)   (dog, brown)   (dog, run)   (dog, on, grass)

The parser is this project's (rules, or any that `load_parser` knows), so these are not SPICE's figures, and the metric
has a name of its own. Words count in their base form. With WordNet, words of one synonym set are the same word.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from saccade.language.caption_words import PREPOSITIONS, RELATIVES, lemma
from saccade.language.parsing.parser import Parse, Parser, load_parser
from saccade.language.wordnet import WordNet
from saccade.metrics.captions.score import Candidates, CaptionScore, References, check_captions

Fact: TypeAlias = tuple[str, ...]
_WITHOUT_MEANING = frozenset(("be", "have", "do"))


def scene_graph_f(
    candidates: Candidates, references: References, parser: Parser | None = None, wordnet: WordNet | None = None
) -> CaptionScore:
    """The F-score of each picture, and their mean."""
    check_captions(candidates, references)
    parser, wordnet = parser or load_parser("rules"), wordnet or WordNet()
    rows = list(zip(candidates, references, strict=True))
    sentences = list(dict.fromkeys(tuple(tokens) for said, given in rows for tokens in (said, *given)))
    known = {tokens: facts(parse) for tokens, parse in zip(sentences, parser.parse_tokens(sentences), strict=True)}
    each = []
    for candidate, given in rows:
        said = known[tuple(candidate)]
        true = frozenset[Fact]().union(*(known[tuple(tokens)] for tokens in given))
        right = sum(_among(fact, true, wordnet) for fact in said)
        found = sum(_among(fact, said, wordnet) for fact in true) if wordnet else right
        precision, recall = right / max(1, len(said)), found / max(1, len(true))
        each.append(2 * precision * recall / (precision + recall) if right and found else 0.0)
    return CaptionScore.mean(each)


def _among(fact: Fact, others: frozenset[Fact], wordnet: WordNet) -> bool:
    """Whether one of the others says the same."""
    return fact in others or any(
        len(fact) == len(other)
        and all(
            a == b or wordnet.synonyms(a.replace(" ", "_"), b.replace(" ", "_"))
            for a, b in zip(fact, other, strict=True)
        )
        for other in (others if wordnet else ())
    )


def facts(parse: Parse) -> frozenset[Fact]:
    """What a sentence says, in base forms."""
    names = {thing: lemma(thing.name, "NOUN") for thing in parse.objects}
    found: set[Fact] = {(name,) for name in names.values()}
    found |= {(names[a.object], lemma(a.word, parse.tags[a.place])) for a in parse.attributes}
    for relation in parse.relations:
        ends = (names[relation.subject], names[relation.object])
        words = tuple(lemma(word, "VERB") for word in relation.predicate)
        if relation.passive:  # "a ball thrown by a man" says that the man throws it
            ends, words = ends[::-1], tuple(word for word in words if word != "by")
        if len(words) > 1 and words[-1] in PREPOSITIONS and words[0] not in PREPOSITIONS:
            words = words[1:]  # who "runs on" the grass runs, and is on it
        found.add((ends[0], " ".join(words), ends[1]))
    return frozenset(found | set(_deeds(parse, {thing.place: name for thing, name in names.items()})))


def _deeds(parse: Parse, names: dict[int, str]) -> Iterable[Fact]:
    """Who does what, whether to something or not: (dog, run)."""
    subjects: dict[int, list[int]] = {}
    for place, (head, label) in enumerate(zip(parse.heads, parse.labels, strict=True)):
        if label == "nsubj" and parse.tokens[place] not in RELATIVES:
            subjects.setdefault(head, []).append(place)
    for place, (tag, label) in enumerate(zip(parse.tags, parse.labels, strict=True)):
        deed = lemma(parse.tokens[place], tag)
        if tag == "VERB" and deed not in _WITHOUT_MEANING:
            who = subjects.get(place) or ([parse.heads[place]] if label.startswith("acl") else [])
            yield from ((names[doer], deed) for doer in who if doer in names)
