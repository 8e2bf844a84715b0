"""Vocabularies of word pieces: Google's Neural Machine Translation System (Wu et al., 2016), as BERT uses them.

A word is cut from the left, always the longest piece that is known; pieces inside a word begin with ##. A vocabulary is
learned from captions with `tokenizers`, or is that of a BERT; cutting needs neither. Ids 0 to 3 are those of every
vocabulary here ([PAD], [CLS], [SEP] and [UNK]), and 4 is [MASK].
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from saccade.batch import END, START, UNKNOWN
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, read_text
from saccade.core.hub import model_folder
from saccade.core.pretrained import PRETRAINED, find_pretrained
from saccade.language.vocabulary import SPECIAL, Vocabulary

MASKED = "[MASK]"
MASK_ID = len(SPECIAL)
OFFICIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", MASKED)  # what a BERT calls the first five of ours
ALWAYS = "abcdefghijklmnopqrstuvwxyz0123456789.,?!'-"  # letters that are learned though no caption has them
LONGEST = 100  # letters; BERT takes a longer word for an unknown one


def greedy_pieces(word: str, known: Container[str]) -> list[str]:
    """From the left, always the longest piece there is; none if a part of the word is no piece."""
    found: list[str] = []
    start = 0
    while start < len(word):
        ends = range(len(word), start, -1)
        piece = next((p for end in ends if (p := "##" * (start > 0) + word[start:end]) in known), None)
        if piece is None:
            return []
        found.append(piece)
        start += len(piece) - 2 * (start > 0)
    return found


def split_words(text: str, lower: bool = True) -> list[str]:
    """BERT's words: at spaces, and every punctuation mark and Chinese character by itself; without accents if lower."""
    if lower:
        plain = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in plain if unicodedata.category(c) != "Mn")
    spaced = []
    for c in text:
        kind = unicodedata.category(c)
        if c.isspace() or kind == "Zs":
            spaced.append(" ")
        elif c in "\0\ufffd" or kind.startswith("C"):
            continue
        else:
            spaced.append(f" {c} " if _stands_alone(c, kind) else c)
    return "".join(spaced).split()


def _stands_alone(c: str, kind: str) -> bool:
    chinese = 0x4E00 <= ord(c) <= 0x9FFF or 0x3400 <= ord(c) <= 0x4DBF or 0xF900 <= ord(c) <= 0xFAFF
    return kind.startswith("P") or (c.isascii() and not c.isalnum()) or chinese


@dataclass(frozen=True)
class WordPieces(Vocabulary):
    """Pieces by id; a sentence's tokens are its pieces, and so are the words that pictures show."""

    lower: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.words[MASK_ID : MASK_ID + 1] != (MASKED,):
            raise SaccadeError(f"a vocabulary of word pieces has {MASKED} after {' '.join(SPECIAL)}")

    @property
    def mask_id(self) -> int:
        return MASK_ID

    @cached_property
    def _cut(self) -> dict[str, tuple[str, ...]]:
        return {}  # of words met before

    def pieces(self, word: str) -> tuple[str, ...]:
        """The pieces of a word; <unk> if it has none."""
        if word not in self._cut:
            found = greedy_pieces(word, self._ids) if len(word) <= LONGEST else []
            self._cut[word] = tuple(found) or (SPECIAL[UNKNOWN],)
        return self._cut[word]

    def unknown(self, text: str) -> list[str]:
        return [word for word in split_words(text, self.lower) if SPECIAL[UNKNOWN] in self.pieces(word)]

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        pieces = [piece for word in split_words(text, self.lower) for piece in self.pieces(word)]
        if not pieces:
            raise SaccadeError("the text is empty: give at least one word")
        return [START, *(self._ids[p] for p in pieces), END], [SPECIAL[START], *pieces, SPECIAL[END]]

    def check(self, text: str) -> list[str]:
        words = [word for word in split_words(text, self.lower) if any(map(str.isalnum, word))]
        if not words:
            raise SaccadeError("the text is empty: give at least one word")
        unknown = self.unknown(text)
        if set(words) <= set(unknown):
            raise SaccadeError(f'the model knows none of the words of "{text}"')
        return unknown

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "pieces": {"lower": self.lower}}

    def used_in(self, texts: Iterable[str]) -> WordPieces:
        """The pieces that these texts need and all single characters, with which any other word can be written."""
        needed = {piece for text in texts for word in split_words(text, self.lower) for piece in self.pieces(word)}
        kept = [w for w in self.words[MASK_ID + 1 :] if w in needed or len(w.removeprefix("##")) == 1]
        return WordPieces((*self.words[: MASK_ID + 1], *kept), self.lower)


def learn_pieces(texts: Iterable[str], size: int, lower: bool = True) -> WordPieces:
    """At most `size` pieces that write these texts in few tokens, learned by `tokenizers`."""
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError as error:
        raise SaccadeError(
            'word pieces are learned with tokenizers: pip install "saccade[hf]", or vocabulary=words reads whole words'
        ) from error
    counted = Counter(word for text in texts for word in split_words(text, lower))
    letters = sorted({letter for word in counted for letter in word} | set(ALWAYS))
    first = [
        *OFFICIAL,
        *letters,
        *(f"##{letter}" for letter in letters),
    ]  # in order: ties are broken by it
    trainer = trainers.WordPieceTrainer(vocab_size=max(size, len(first)), special_tokens=first, show_progress=False)
    tokeniser: Any = Tokenizer(models.WordPiece(unk_token=OFFICIAL[UNKNOWN]))
    tokeniser.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokeniser.train_from_iterator((" ".join([word] * count) for word, count in sorted(counted.items())), trainer)
    found = tokeniser.get_vocab()
    return official_pieces(sorted(found, key=found.__getitem__), lower)


def official_pieces(pieces: Sequence[str], lower: bool = True, source: object = "the vocabulary") -> WordPieces:
    """A BERT's pieces with our five first, which it must have."""
    missing = [piece for piece in OFFICIAL if piece not in pieces]
    if missing:
        raise SaccadeError(f"{source} is no vocabulary of a BERT: it has no {missing[0]}")
    return WordPieces((*SPECIAL, MASKED, *(piece for piece in pieces if piece not in OFFICIAL)), lower)


def bert_folder(place: str) -> Path:
    """The folder of a BERT: minilm (`saccade weights get minilm`), a folder, or OWNER/NAME of the hub."""
    return find_pretrained(place)[0].parent if place in PRETRAINED else model_folder(place)


def official_order(folder: Path) -> list[str]:
    """The pieces in vocab.txt or tokenizer.json of a folder, in the order of a BERT's table.

    Raises: SaccadeError if it has neither, or they are no word pieces.
    """
    listed, table = folder / "vocab.txt", folder / "tokenizer.json"
    if listed.is_file():
        return read_text(listed).splitlines()
    if not table.is_file():
        raise SaccadeError(f"{folder} has no vocabulary: vocab.txt or tokenizer.json was expected")
    described = read_json(table)
    model = described.get("model") if isinstance(described, dict) else None
    words = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(words, dict) or sorted(words.values(), key=str) != sorted(range(len(words)), key=str):
        raise SaccadeError(f"{table} is no tokeniser of word pieces: it has no table of them")
    return sorted(words, key=words.__getitem__)


def read_pieces(place: str | Path) -> WordPieces:
    """The pieces of a BERT by `bert_folder`'s names."""
    folder = bert_folder(str(place))
    said = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    lower = bool(said.get("do_lower_case", True)) if isinstance(said, dict) else True
    return official_pieces(official_order(folder), lower, folder)
