"""What lies beside checkpoints of ImageCaptioning.pytorch and its kin: `infos_*.pkl` with the options and the words.

Words have ids 1, 2, …; 0 is start, end and padding at once, and `UNK` stands for all other words. Here these are four
ids of their own, so word tables are rearranged on the way in, and columns and gradients on the way back.
"""

from __future__ import annotations

import argparse
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.core.pickles import read_pickle
from saccade.interop.options import Options
from saccade.language import Vocabulary
from saccade.language.vocabulary import END, PAD, SPECIAL, START, UNKNOWN

UNKNOWN_WORDS = ("UNK", "<unk>", "<UNK>")
NEVER = -1e4  # the logit of a word that a checkpoint does not have


class _Nothing:
    """Stands in for what is not needed (a best score kept as a NumPy number); it takes anything and does nothing."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...


def _plain_dict(*_: object) -> dict[Any, Any]:
    """A defaultdict without its factory."""
    return {}


PLAIN: dict[tuple[str, str], Any] = {
    ("argparse", "Namespace"): argparse.Namespace,
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "defaultdict"): _plain_dict,
    **{(room, kind.__name__): kind for room in ("builtins", "__builtin__") for kind in (int, float, list, dict, set)},
    **{("numpy", name): _Nothing for name in ("dtype", "ndarray")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Nothing for core in ("core", "_core")},
    ("_codecs", "encode"): _Nothing,  # how old protocols write the bytes of such a number
}


def read_plain_pickle(path: Path | str) -> Any:
    """A pickle of plain containers, numbers, words and `argparse.Namespace`; anything else is refused by name."""
    return read_pickle(path, PLAIN, "pickle of plain data", encoding="latin1")


@dataclass(frozen=True)
class OfficialWords:
    """Which of our words each official word is."""

    vocabulary: Vocabulary
    ours: Int[Tensor, " official"]  # our id of each official id; id 0 is <end> here

    @staticmethod
    def of(table: Any, source: str) -> OfficialWords:
        """From {"1": word, "2": word, …}."""
        if not isinstance(table, Mapping) or not table:
            raise SaccadeError(f'{source}: expected a "vocab" table of ids and words')
        try:
            words = {int(key): str(word) for key, word in table.items()}
        except ValueError as error:
            raise SaccadeError(f'{source}: an id of "vocab" is not a number') from error
        if sorted(words) != list(range(1, len(words) + 1)):
            raise SaccadeError(f'{source}: the ids of "vocab" are not 1, 2, 3, …')
        unknown = next((i for name in UNKNOWN_WORDS for i in sorted(words) if words[i] == name), None)
        kept = [i for i in sorted(words) if i != unknown]
        ours = torch.full((len(words) + 1,), UNKNOWN)
        ours[0] = END
        ours[kept] = torch.arange(len(kept)) + len(SPECIAL)
        try:
            return OfficialWords(Vocabulary((*SPECIAL, *(words[i] for i in kept))), ours)
        except SaccadeError as error:
            raise SaccadeError(f"{source}: {error}") from error

    def __len__(self) -> int:
        return len(self.ours)

    @property
    def has_unknown(self) -> bool:
        return bool((self.ours == UNKNOWN).any())

    def inputs(self, table: Float[Tensor, "official dim"]) -> Float[Tensor, "word dim"]:
        """A table of word vectors in our order: what read as 0 reads as <start>, <end> and padding."""
        ours = table.new_zeros(len(self.vocabulary), table.shape[1])
        ours[self.ours] = table
        ours[[PAD, START]] = table[0]
        return ours

    def outputs(self, table: Float[Tensor, "official ..."]) -> Float[Tensor, "word ..."]:
        """The rows (or biases) that words are said with in our order; a word they lack is never said."""
        ours = table.new_zeros(len(self.vocabulary), *table.shape[1:])
        ours[self.ours] = table
        if table.dim() == 1 and not self.has_unknown:
            ours[UNKNOWN] = NEVER
        return ours

    def inputs_back(self, table: Float[Tensor, "word dim"]) -> Float[Tensor, "official dim"]:
        """A gradient of our word vectors as one of theirs."""
        theirs = table[self.ours]
        theirs[0] += table[[PAD, START]].sum(dim=0)
        return theirs

    def columns_back(self, values: Float[Tensor, "*rows word"]) -> Float[Tensor, "*rows official"]:
        """Log-probabilities of our words as theirs."""
        return values[..., self.ours]

    def sentences(self, ids: Int[Tensor, "text step"]) -> Int[Tensor, "text step"]:
        """Official ids as ours: the first 0 is <end>, those after it padding."""
        ended = (ids == 0).cumsum(dim=1)
        return self.ours[ids].masked_fill(ended > 1, PAD)

    def sentences_back(self, words: Int[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
        """Our ids as theirs: <start>, <end> and padding are 0."""
        theirs = torch.zeros(len(self.vocabulary), dtype=torch.long)
        theirs[self.ours] = torch.arange(len(self))
        return theirs[words]


@dataclass(frozen=True)
class Infos:
    options: Options
    words: OfficialWords

    @staticmethod
    def read(path: Path | str, system: str) -> Infos:
        """The options and words of an `infos_*.pkl`."""
        found = read_plain_pickle(path)
        if not isinstance(found, Mapping):
            raise SaccadeError(f"{path} holds a {type(found).__name__}, a dictionary with opt and vocab was expected")
        options = Options.of(found, path, system)
        if any(options.get(f"{mark}_idx", 0) for mark in ("bos", "eos", "pad")):
            raise SaccadeError(f"{path}: bos_idx, eos_idx and pad_idx are 0 in {system} checkpoints, here they are not")
        return Infos(options, OfficialWords.of(found.get("vocab"), str(path)))


def infos_beside(checkpoint: Path | str) -> Path:
    """The `infos` of a checkpoint: model-best.pth and infos_ID-best.pkl, or NAME_model.pth and NAME_infos.pkl."""
    path = Path(checkpoint)
    named = path.with_name(f"{path.stem.replace('model', 'infos')}.pkl")
    if "model" in path.stem and named.exists():
        return named
    ending = path.stem.rpartition("model")[2]  # "-best", "-12000", or nothing
    found = [
        file
        for file in sorted(path.parent.glob("infos*.pkl"))
        if file.stem.endswith(ending) and (ending or "-" not in file.stem)
    ]
    if len(found) != 1:
        raise SaccadeError(
            f"{path} needs its options and words: expected one infos_*{ending}.pkl beside it, found {len(found)}"
        )
    return found[0]
