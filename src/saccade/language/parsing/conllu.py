"""CoNLL-U, the table in which parsers exchange trees: read with faults named by line and column, and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.errors import SaccadeError, explain_os_errors
from saccade.files import write_text
from saccade.language.parsing.parser import Parse

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")


@dataclass(frozen=True)
class ForeignSentence:
    """A sentence as another parser cut and joined it; heads count from 0, -1 is the root."""

    where: str
    forms: tuple[str, ...]
    heads: tuple[int, ...]
    labels: tuple[str, ...]
    tags: tuple[str, ...]


def read_conllu(path: Path) -> Iterator[ForeignSentence]:
    """The sentences of a file. Ranges ("1-2") and empty nodes ("8.1") are passed over, as the format has it."""
    rows: list[tuple[int, list[str]]] = []
    with explain_os_errors(path, "read"), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise SaccadeError(f"{path}, line {number} is not UTF-8 text") from error
            if not text.strip():
                if rows:
                    yield _sentence(path, rows)
                rows = []
            elif not text.startswith("#"):
                fields = text.split("\t")
                if len(fields) != len(COLUMNS):
                    raise SaccadeError(
                        f"{path}, line {number}: {len(fields)} columns, CoNLL-U has {len(COLUMNS)} divided by tabs"
                    )
                if fields[0].isdecimal():
                    rows.append((number, fields))
                elif not fields[0].replace("-", "").replace(".", "").isdecimal():
                    raise SaccadeError(f"{path}, line {number}: the ID is {fields[0]!r}, a number was expected")
    if rows:
        yield _sentence(path, rows)


def _sentence(path: Path, rows: list[tuple[int, list[str]]]) -> ForeignSentence:
    heads = []
    for place, (line, fields) in enumerate(rows):
        where = f"{path}, line {line}"
        if int(fields[0]) != place + 1:
            raise SaccadeError(f"{where}: the ID is {fields[0]}, {place + 1} was expected")
        if not fields[6].isdecimal() or int(fields[6]) > len(rows) or int(fields[6]) == place + 1:
            raise SaccadeError(
                f"{where}: the HEAD of {fields[1]!r} is {fields[6]!r}, another word of its sentence (1 to {len(rows)}) "
                "or 0 was expected"
            )
        heads.append(int(fields[6]) - 1)
    where = f"{path}, line {rows[0][0]}"
    check_tree(where, heads)
    fields_of = [fields for _, fields in rows]
    tags = tuple(f[3] if f[3] != "_" else universal_tag(f[4], f[7]) for f in fields_of)
    return ForeignSentence(where, tuple(f[1] for f in fields_of), tuple(heads), tuple(f[7] for f in fields_of), tags)


def check_tree(where: str, heads: Sequence[int]) -> None:
    """Refuse heads that go round in a circle, and sentences without a root."""
    safe: set[int] = {-1}
    for place in range(len(heads)):
        way: list[int] = []
        at = place
        while at not in safe:
            if at in way:
                raise SaccadeError(f"{where}: the heads of this sentence go round in a circle")
            way.append(at)
            at = heads[at]
        safe.update(way)


_TAGS = {
    "NN": "NOUN", "NNS": "NOUN", "NNP": "PROPN", "NNPS": "PROPN", "JJ": "ADJ", "JJR": "ADJ", "JJS": "ADJ", "RB": "ADV",
    "RBR": "ADV", "RBS": "ADV", "WRB": "ADV", "IN": "ADP", "RP": "ADP", "DT": "DET", "PDT": "DET", "CD": "NUM",
    "PRP": "PRON", "PRP$": "PRON", "WP": "PRON", "WP$": "PRON", "WDT": "PRON", "EX": "PRON", "CC": "CCONJ",
    "TO": "PART", "POS": "PART", "MD": "AUX", "UH": "INTJ", "FW": "X", "LS": "X", "SYM": "SYM",
}  # fmt: skip


def universal_tag(tag: str, label: str) -> str:
    """NOUN for NN and so on: the universal tag of one of the Penn Treebank."""
    if tag.startswith("VB"):
        return "AUX" if label.startswith(("aux", "cop")) else "VERB"
    return _TAGS.get(tag, "X" if any(map(str.isalnum, tag)) else "PUNCT")


def write_conllu(path: Path | str, parses: Sequence[Parse]) -> None:
    """One block a sentence; `load_parser("file:…")` and other tools read it back."""
    write_text(path, "".join(_block(number, parse) for number, parse in enumerate(parses, start=1)))


def _block(number: int, parse: Parse) -> str:
    rows = [
        "\t".join((str(place + 1), token, "_", tag, "_", "_", str(head + 1), label, "_", "_"))
        for place, (token, head, label, tag) in enumerate(
            zip(parse.tokens, parse.heads, parse.labels, parse.tags, strict=True)
        )
    ]
    return "\n".join([f"# sent_id = {number}", f"# text = {' '.join(parse.tokens)}", *rows, "", ""])
