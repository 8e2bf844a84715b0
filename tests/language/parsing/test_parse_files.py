"""Parses made elsewhere: read, carried over to our tokens, written; damaged files are answered with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saccade.core.errors import SaccadeError
from saccade.language import load_parser
from saccade.language.parsing.foreign import FileParser, write_conllu

CAPTIONS = ("A brown dog chases two cats .", "The man's t-shirt is red (and white) .", 'a "big" house')

ROWS = [  # a tool that cuts "t-shirt" in three and leaves "man's" whole; the labels are spaCy's
    (1, "The", "DET", 2, "det"),
    (2, "man's", "NOUN", 5, "poss"),
    (3, "t", "NOUN", 5, "compound"),
    (4, "-", "PUNCT", 5, "punct"),
    (5, "shirt", "NOUN", 6, "nsubj"),
    (6, "is", "AUX", 0, "ROOT"),
    (7, "red", "ADJ", 6, "acomp"),
    (8, "on", "ADP", 6, "prep"),
    (9, "-LRB-", "PUNCT", 11, "punct"),
    (10, "the", "DET", 11, "det"),
    (11, "grass", "NOUN", 8, "pobj"),
    (12, "-RRB-", "PUNCT", 11, "punct"),
]


def conllu(rows: list[tuple[int, str, str, int, str]]) -> str:
    return "".join(f"{i}\t{form}\t_\t{tag}\t_\t_\t{head}\t{label}\t_\t_\n" for i, form, tag, head, label in rows) + "\n"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    parses = load_parser("rules").parse(CAPTIONS)
    write_conllu(tmp_path / "parses.conllu", parses)
    parser = load_parser(f"file:{tmp_path / 'parses.conllu'}")
    assert parser.parse(CAPTIONS) == parses
    assert isinstance(parser, FileParser)
    assert (parser.found, parser.missed) == (3, 0)


def test_a_sentence_that_is_not_there_is_parsed_by_the_rules(tmp_path: Path) -> None:
    (tmp_path / "some.conllu").write_text(conllu(ROWS))
    parser = FileParser(tmp_path / "some.conllu")
    assert parser.parse(["a dog runs"]) == load_parser("rules").parse(["a dog runs"])
    assert (parser.found, parser.missed) == (0, 1)


def test_other_tokens_and_labels_are_carried_over(tmp_path: Path) -> None:
    (tmp_path / "spacy.conllu").write_text("# text = …\n" + conllu(ROWS))
    parse = load_parser(f"file:{tmp_path / 'spacy.conllu'}").parse(["The man's t-shirt is red on (the grass)"])[0]
    assert parse.tokens == ("the", "man", "'s", "t-shirt", "is", "red", "on", "(", "the", "grass", ")")
    head = {token: parse.tokens[h] if h >= 0 else "" for token, h in zip(parse.tokens, parse.heads, strict=True)}
    label = dict(zip(parse.tokens, parse.labels, strict=True))
    assert (head["man"], label["man"]) == ("t-shirt", "nmod:poss")
    assert head["'s"] == "man"
    assert (head["t-shirt"], label["t-shirt"]) == ("red", "nsubj")
    assert (head["red"], label["red"], label["is"]) == ("", "root", "cop")
    assert (head["on"], label["on"], head["grass"]) == ("grass", "case", "red")
    assert [(a.object.name, a.word) for a in parse.attributes] == [("t-shirt", "red")]


def corenlp(graph: str, links: list[tuple[str, int, int]]) -> dict[str, Any]:
    words = [("A", "DT"), ("dog", "NN"), ("is", "VBZ"), ("on", "IN"), ("grass", "NN")]
    tokens = [{"index": n + 1, "word": w, "originalText": w, "pos": p} for n, (w, p) in enumerate(words)]
    return {"tokens": tokens, graph: [{"dep": d, "governor": g, "dependent": n} for d, g, n in links]}


BASIC = [("ROOT", 0, 5), ("det", 2, 1), ("nsubj", 5, 2), ("cop", 5, 3), ("case", 5, 4)]


@pytest.mark.parametrize("graph", ["basicDependencies", "enhancedPlusPlusDependencies"])
def test_corenlp_is_read(tmp_path: Path, graph: str) -> None:
    links = [*BASIC, ("nmod:on", 2, 5)]  # an enhanced graph gives a word two heads
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"sentences": [corenlp(graph, links)]}))
    parse = load_parser(f"file:{path}").parse(["a dog is on grass"])[0]
    assert parse.heads == (1, 4, 4, 4, -1)
    assert parse.tags == ("DET", "NOUN", "AUX", "ADP", "NOUN")
    assert [(r.subject.name, r.predicate, r.object.name) for r in parse.relations] == [("dog", ("on",), "grass")]


DAMAGED = {
    "columns.conllu": ("1\tdog\t_\n", "line 1: 3 columns"),
    "id.conllu": (conllu(ROWS).replace("2\tman's", "7\tman's"), "line 2: the ID is 7, 2 was expected"),
    "word.conllu": (conllu(ROWS).replace("2\tman's", "x\tman's"), "line 2: the ID is 'x'"),
    "head.conllu": (conllu([(1, "dog", "NOUN", 4, "root")]), "line 1: the HEAD of 'dog' is '4'"),
    "circle.conllu": (conllu([(1, "a", "DET", 2, "det"), (2, "dog", "NOUN", 1, "root")]), "line 1.*circle"),
    "empty.conllu": ("# nothing\n", "no sentences"),
    "parses.txt": ("", "end in .conllu"),
    "broken.json": ("{", "not valid JSON"),
    "other.json": ('{"annotations": []}', '"sentences" is missing'),
    "tokens.json": ('{"sentences": [{"tokens": 3}]}', r'sentences\[0\]: "tokens"'),
    "graph.json": ('{"sentences": [{"tokens": [{"word": "a"}]}]}', "basicDependencies"),
    "root.json": (json.dumps({"sentences": [corenlp("basicDependencies", BASIC[1:])]}), "governor 0"),
    "range.json": (json.dumps([{"sentences": [corenlp("basicDependencies", [("det", 9, 1)])]}]), "governor 9"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(tmp_path: Path, name: str) -> None:
    content, expected = DAMAGED[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(SaccadeError, match=expected) as told:
        load_parser(f"file:{tmp_path / name}")
    assert str(tmp_path / name) in str(told.value)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_bytes(b"1\t\xff\n")
    with pytest.raises(SaccadeError, match="line 1 is not UTF-8"):
        load_parser(f"file:{tmp_path / 'a.conllu'}")
    with pytest.raises(SaccadeError, match="does not exist"):
        load_parser(f"file:{tmp_path / 'b.conllu'}")
