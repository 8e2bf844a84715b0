"""Official checkpoints of Unsupervised Image Captioning: TensorFlow variables to weights, word ids to ours.

A checkpoint is an .npz of the variables by name, `/` written as `|`; `docs/systems/unsupervised.md` has the lines that
write one from TensorFlow's own files. Official ids: <S> 0, </S> 1, then the words, and <unk> last.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_official
from saccade.interop.verification import load_arrays
from saccade.interop.vocabulary import numbered_words
from saccade.language import Vocabulary
from saccade.language.vocabulary import END, SPECIAL, START, UNKNOWN
from saccade.models import Unsupervised, UnsupervisedConfig

GENERATOR, DISCRIMINATOR = "Generator", "Discriminator"
NAMES = {  # official variable → our weights: a linear map, an LSTM's kernel (in and back) or its bias, a plain table
    f"{GENERATOR}/embedding": ("embed.weight",),
    f"{GENERATOR}/softmax_b": ("bias",),
    f"{GENERATOR}/fully_connected/weights": ("project.weight",),
    f"{GENERATOR}/fully_connected/biases": ("project.bias",),
    f"{GENERATOR}/basic_lstm_cell/kernel": ("cell.weight_ih", "cell.weight_hh"),
    f"{GENERATOR}/basic_lstm_cell/bias": ("cell.bias_ih",),
    f"{DISCRIMINATOR}/embedding": ("critic.embed.weight",),
    f"{DISCRIMINATOR}/rnn/basic_lstm_cell/kernel": ("critic.lstm.weight_ih_l0", "critic.lstm.weight_hh_l0"),
    f"{DISCRIMINATOR}/rnn/basic_lstm_cell/bias": ("critic.lstm.bias_ih_l0",),
    f"{DISCRIMINATOR}/fc/weights": ("critic.natural.weight",),
    f"{DISCRIMINATOR}/fc/biases": ("critic.natural.bias",),
    f"{DISCRIMINATOR}/recon/weights": ("critic.recall.weight",),
    f"{DISCRIMINATOR}/recon/biases": ("critic.recall.bias",),
}
BIASES_OF_STATE = ("cell.bias_hh", "critic.lstm.bias_hh_l0")  # PyTorch's second bias: there is none in TensorFlow
FORGET_BIAS = 1.0  # which TensorFlow adds while running


def our_ids(size: int) -> Int[Tensor, " official"]:
    """Our id of each of `size` official ids; we have one more word, the padding."""
    return torch.tensor([START, END, *range(len(SPECIAL), size + 1), UNKNOWN])


def import_unsupervised(path: Path | str, vocabulary: Vocabulary | None = None) -> Unsupervised:
    """The two players in an .npz of TensorFlow variables; without the vocabulary, words are named by their numbers."""
    variables = _variables(Path(path))
    words, dim = variables[f"{GENERATOR}/embedding"].shape
    vocabulary = vocabulary or numbered_words(words + 1)
    if len(vocabulary) != words + 1:
        raise SaccadeError(f"{path} knows {words} words, the vocabulary {len(vocabulary) - 1} without <pad>")
    region_dim = len(variables[f"{GENERATOR}/fully_connected/weights"])
    config = UnsupervisedConfig(region_dim=region_dim, dim=dim, concept_reader=False)
    model = Unsupervised(config, vocabulary)
    state = {name: torch.zeros(4 * dim) for name in BIASES_OF_STATE}
    for official, ours in NAMES.items():
        state |= zip(ours, _ours(official, torch.from_numpy(variables[official]), dim), strict=True)
    load_official(model, state, path)
    return model.eval()


def _variables(path: Path) -> dict[str, np.ndarray]:
    """By official name; a sentence where one is missing or has another number of axes than it should."""
    found = {name.replace("|", "/").removesuffix(":0"): value for name, value in load_arrays(path).items()}
    for name in NAMES:
        if name not in found:
            raise SaccadeError(f'{path} has no variable "{name}": expected those of the full model, `/` written as `|`')
        axes = 1 if name.endswith(("bias", "biases", "softmax_b")) else 2
        if found[name].ndim != axes:
            raise SaccadeError(f"{path}: {name} has {found[name].ndim} axes, {axes} were expected")
    return found


def _ours(official: str, value: Tensor, dim: int) -> list[Tensor]:
    """A variable as the weights that `NAMES` has for it."""
    if official.endswith("/kernel"):
        inward, back = torch.split(gates(value).T, dim, dim=1) if len(value) == 2 * dim else (value.T, value.T)
        return [inward, back]
    if official.endswith("/bias"):
        bias = gates(value)
        bias[dim : 2 * dim] += FORGET_BIAS
        return [bias]
    if official.endswith(("/embedding", "/softmax_b")):
        table = value.new_zeros(len(value) + 1, *value.shape[1:])
        table[our_ids(len(value))] = value
        return [table]
    return [value.T if value.dim() == 2 else value]


def gates(value: Float[Tensor, "*rows gates"]) -> Float[Tensor, "*rows gates"]:
    """TensorFlow's order of the gates, in, candidate, forget, out, to PyTorch's: in, forget, candidate, out."""
    i, candidate, forget, out = value.chunk(4, dim=-1)
    return torch.cat([i, forget, candidate, out], dim=-1)
