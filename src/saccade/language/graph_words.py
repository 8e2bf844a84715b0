"""Scene graphs in the words of a vocabulary: what a model of graphs reads of a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.batch import UNKNOWN, SceneGraphBatch, padded_ids
from saccade.language.parsing.scene_graph import SceneGraph
from saccade.language.vocabulary import Vocabulary

SMALL = frozenset(("of", "to", "in", "on", "at", "by", "with", "from", "the", "a"))  # in predicates of several words
Triple = tuple[int, int, int]  # the places of subject and object, and the word of their relation


def graph_words(graphs: Sequence[SceneGraph], vocabulary: Vocabulary) -> SceneGraphBatch:
    """Things, relations and attributes as word ids; a relation of several words has that of the most telling one."""
    objects, relations, attributes = [], [], []
    for graph in graphs:
        place = {thing: n for n, thing in enumerate(graph.objects)}
        objects.append([vocabulary.id_of(thing.name) for thing in graph.objects])
        relations.append(
            [(place[r.subject], place[r.object], telling_word(r.predicate, vocabulary)) for r in graph.relations]
        )
        said: dict[int, list[int]] = {}
        for attribute in graph.attributes:
            said.setdefault(place[attribute.object], []).append(vocabulary.id_of(attribute.word))
        attributes.append(dict(sorted(said.items())))
    return padded_graphs(objects, relations, attributes)


def telling_word(predicate: Sequence[str], vocabulary: Vocabulary) -> int:
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
