"""Official checkpoints of Unsupervised Image Captioning: TensorFlow variables.

A checkpoint is an .npz of the variables by name, `/` written as `|`; `docs/systems/unsupervised.md` has the lines that
write one from TensorFlow's own files. Official ids: <S> 0, </S> 1, then the words, and <unk> last.
"""

from __future__ import annotations

from pathlib import Path

import torch

from saccade.batch import END, START, UNKNOWN
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import Options
from saccade.interop.importer import Importer, Source, Table, blocks, const, ignored, raised, rows, to, transposed
from saccade.interop.words import OfficialWords, numbered_words
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import Unsupervised, UnsupervisedConfig

GATES = blocks(0, 2, 1, 3)  # theirs: in, candidate, forget, out; ours: in, forget, candidate, out
FORGET_BIAS = raised(1.0, block=1, of=4)  # which TensorFlow adds while running
ONE_AXIS = ("bias", "biases", "softmax_b")  # the ends of names


def weights(config: UnsupervisedConfig) -> Table:
    def lstm(theirs: str, ours: str, layer: str) -> Table:
        """One kernel for input and state; PyTorch's second bias is not there."""
        return {
            f"{theirs}/basic_lstm_cell/kernel": (
                to(f"{ours}.weight_ih{layer}", rows(None, config.dim), transposed, GATES),
                to(f"{ours}.weight_hh{layer}", rows(config.dim, None), transposed, GATES),
            ),
            f"{theirs}/basic_lstm_cell/bias": to(f"{ours}.bias_ih{layer}", GATES, FORGET_BIAS),
        }

    def linear(theirs: str, ours: str) -> Table:
        return {f"{theirs}/weights": to(f"{ours}.weight", transposed), f"{theirs}/biases": to(f"{ours}.bias")}

    return {
        "Generator/embedding": to("embed.weight", words="input"),
        "Generator/softmax_b": to("bias", words="output"),
        **linear("Generator/fully_connected", "project"),
        **lstm("Generator", "cell", ""),
        "Discriminator/embedding": to("critic.embed.weight", words="input"),
        **lstm("Discriminator/rnn", "critic.lstm", "_l0"),
        **linear("Discriminator/fc", "critic.natural"),
        **linear("Discriminator/recon", "critic.recall"),
        "*": ignored("counters and the optimiser's own"),
    }


VARIABLES = [name for name in weights(UnsupervisedConfig()) if name != "*"]


def read(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    found = {name.replace("|", "/").removesuffix(":0"): value for name, value in read_npz(path).items()}
    for name in VARIABLES:
        if name not in found:
            raise SaccadeError(f'{path} has no variable "{name}": expected those of the full model, `/` written as `|`')
        axes = 1 if name.endswith(ONE_AXIS) else 2
        if found[name].ndim != axes:
            raise SaccadeError(f"{path}: {name} has {found[name].ndim} axes, {axes} were expected")
    count = len(found["Generator/embedding"])
    vocabulary = vocabulary or numbered_words(count + 1)
    if len(vocabulary) != count + 1:
        raise SaccadeError(f"{path} knows {count} words, the vocabulary {len(vocabulary) - 1} without <pad>")
    ours = torch.tensor([START, END, *range(len(SPECIAL), count + 1), UNKNOWN])
    words = OfficialWords(vocabulary, ours, ours)
    variables = {name: torch.from_numpy(found[name]) for name in VARIABLES}
    return Source(path, title, Options({}, path, title), variables, vocabulary, words)


UNSUPERVISED = Importer(
    system="unsupervised",
    title="Unsupervised",
    model=Unsupervised,
    reads=read,
    config={
        "region_dim": lambda source: len(source.weights["Generator/fully_connected/weights"]),
        "dim": lambda source: source.weights["Generator/embedding"].shape[1],
        "concept_reader": const(False),
    },
    weights=weights,
    zeros=("cell.bias_hh", "critic.lstm.bias_hh_l0"),
)
