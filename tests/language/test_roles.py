"""Semantic roles: of clauses and what joins them, from files of other tools, and as the tables that models read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.core.files import write_json
from saccade.language.parsing.roles import RoleGraph, RoleNode
from saccade.language.roles import ROLES, RoleReader, read_role_graphs, role_number, role_tables, shared_roles


def said(sentence: str, reader: RoleReader | None = None) -> set[str]:
    """Every role as "ACTION ROLE PHRASE"."""
    (graph,) = (reader or shared_roles()).read([sentence])
    actions = {f"{graph.words(node)} V" for node in graph.nodes if node.is_action}
    words = [graph.words(node) for node in graph.nodes]
    return actions | {f"{words[action]} {role} {words[entity]}" for action, entity, role in graph.edges}


def test_who_does_what_to_whom() -> None:
    assert said("a man is cutting a tomato with a knife") == {
        "cutting V",
        "cutting ARG0 a man",
        "cutting ARG1 a tomato",
        "cutting ARGM-MNR with a knife",
    }
    assert said("a woman is being chased by a dog") == {"chased V", "chased ARG1 a woman", "chased ARG0 by a dog"}
    assert said("a man gives a woman a flower") == {
        "gives V",
        "gives ARG0 a man",
        "gives ARG2 a woman",
        "gives ARG1 a flower",
    }
    assert said("two dogs play and run on grass") == {
        "play V",
        "play ARG0 two dogs",
        "run V",
        "run ARG0 two dogs",
        "run ARGM-LOC on grass",
    }
    assert "covered ARG1 a slope" in said("two kids slide down a slope that is covered with snow")
    assert said("the house turns red") == {"turns V", "turns ARG1 the house", "turns ARG2 red"}


def test_words_for_the_order_of_events_cut_clauses() -> None:
    first, second = {"jumps V", "jumps ARG0 a dog"}, {"picks up V", "picks up ARG0 the cat", "picks up ARG1 a ball"}
    for sentence, more in {
        "a dog jumps, then the cat picks up a ball": {"picks up ARGM-TMP then"},
        "a dog jumps before the cat picks up a ball": {"jumps ARGM-TMP before the cat picks up a ball"},
        "while a dog jumps, the cat picks up a ball": {"picks up ARGM-TMP while a dog jumps"},
    }.items():
        assert said(sentence) == first | second | more
    assert "leaves ARG0 a dog" in said("a dog hits a ball and then leaves")  # the subject is said once
    assert said("a dog jumps before a brick wall") == {*first, "jumps ARGM-LOC before a brick wall"}


def test_a_sentence_without_a_verb_has_its_things() -> None:
    (graph,) = shared_roles().read(["a red car in a street"])
    assert [(node.role, graph.words(node)) for node in graph.nodes] == [("NOUN", "a red car"), ("NOUN", "a street")]
    assert graph.edges == ()
    assert shared_roles().read([""]) == [RoleGraph(())]


def test_graphs_of_a_file_come_before_the_rules(tmp_path: Path) -> None:
    """In the layout of the authors, whose words are cut at blanks; ours cut "dog's" in two."""
    nodes = {
        "0": {"role": "ROOT", "spans": [0, 1, 2, 3], "words": []},
        "1": {"role": "V", "spans": [2], "words": ["wags"]},
        "2": {"role": "ARG0", "spans": [0, 1], "words": ["the", "dog's"]},
        "3": {"role": "R-ARG1", "spans": [3], "words": ["tail"]},
    }
    given = {"the dog's wags tail": [nodes, [["0", "1", "V"], ["1", "2", "ARG0"], ["1", "3", "R-ARG1"]]]}
    write_json(tmp_path / "graphs.json", given)
    reader = shared_roles(f"roles:{tmp_path / 'graphs.json'}")
    assert said("The dog's wags tail", reader) == {"wags V", "wags ARG0 the dog 's", "wags R-ARG1 tail"}
    assert said("a cat sits", reader) == {"sits V", "sits ARG0 a cat"}
    assert (reader.found, reader.missed) == (1, 1)
    (graph,) = shared_roles().read(["a man is cutting a tomato"])
    write_json(tmp_path / "own.json", {"a man is cutting a tomato": graph.to_json()})
    assert read_role_graphs(tmp_path / "own.json") == {"a man is cutting a tomato": graph}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "role graphs by sentence were expected"),
        ([{"nodes": {}}], "role graphs by sentence were expected"),
        ({"a dog": {"1": 2}}, r"\[nodes, edges\] was expected"),
        ({"a dog": [{"1": {"role": "V"}}, []]}, 'node 1 needs a "role" and its "spans"'),
        ({"a dog": [{"1": {"role": "V", "spans": [2]}}, []]}, "places that its 2 words do not have"),
        ({"a dog": [{"1": {"role": "V", "spans": [True]}}, []]}, "places that its 2 words do not have"),
        ({"a dog": [{"1": {"role": "V", "spans": [0]}}, [["1", "7", "ARG0"]]]}, "joins nodes that are not there"),
        ({"a dog": [{"1": {"role": "V", "spans": [0]}}, [["1"]]]}, r"an edge is \[action, entity, role\]"),
    ],
)
def test_a_damaged_file_is_answered(given: Any, expected: str, tmp_path: Path) -> None:
    write_json(tmp_path / "graphs.json", given)
    with pytest.raises(SaccadeError, match=expected):
        read_role_graphs(tmp_path / "graphs.json")


def test_role_numbers_are_those_of_the_released_code() -> None:
    assert [role_number(role) for role in ("V", "ARG1", "ARG0", "C-ARG1", "R-ARG0", "NOUN")] == [0, 1, 2, 1, 2, 15]
    assert role_number("ARGM-XYZ") == ROLES.index("NOUN")


def test_tables_hold_the_first_nodes_that_fit_and_rows_of_edges_sum_to_one() -> None:
    nodes = (
        RoleNode("V", (1,)),
        RoleNode("ARG0", (0,)),
        RoleNode("V", (3,)),  # no slot left
        RoleNode("ARG1", (2, 3, 4)),  # reaches beyond the longest
        RoleNode("ARG2", (4,)),  # begins beyond it
        RoleNode("ARGM-LOC", (2,)),  # no slot left
    )
    edges = ((0, 1, "ARG0"), (0, 3, "ARG1"), (2, 3, "ARG1"), (0, 4, "ARG2"))
    graph = RoleGraph(tuple("abcde"), nodes, edges)
    found = role_tables([graph, RoleGraph(("x",))], actions=1, entities=2, words=7, longest=4)
    assert [row.nonzero().flatten().tolist() for row in found.role_words[0]] == [[2], [1], [3, 4]]
    assert found.roles[0].tolist() == [0, 2, 1]
    third = 1 / 3
    expected = [[0, 0, 0, 0], [third, 0, third, third], [0, 1, 0, 0], [0, 1, 0, 0]]
    torch.testing.assert_close(found.edges[0], torch.tensor(expected))
    assert not found.edges[1].any()
    listening = role_tables([graph], 1, 2, 7, 4, event_listens=True).edges[0]
    torch.testing.assert_close(listening[0], torch.tensor([0.0, 1.0, 0.0, 0.0]))
