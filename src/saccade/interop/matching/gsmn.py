"""Official GSMN checkpoints: options to config, weights to weights.

A checkpoint is {epoch, model: [image, text, visual graph, textual graph], best_rsum, opt: Namespace, Eiters}. The
released code passes no messages between nodes, and so do the models that are imported from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_official, read_checkpoint, state_dicts
from saccade.interop.matching.encoders import fitting_vocabulary, fragment_settings, load_encoders
from saccade.interop.options import Options
from saccade.language import Vocabulary
from saccade.models import Gsmn, GsmnConfig

PARTS = {"img_enc": "regions", "txt_enc": "words", "visual_graph": "visual", "text_graph": "textual"}
GRAPHS = {False: "dense", True: "sparse"}
NAMES = {  # official names within a graph → ours
    r"visual\.graph_convolution_1\.mean_rho": "places.distance",
    r"visual\.graph_convolution_1\.mean_theta": "places.angle",
    r"visual\.graph_convolution_1\.precision_rho": "places.distance_width",
    r"visual\.graph_convolution_1\.precision_theta": "places.angle_width",
    r"(\w+)\.graph_convolution_[13]\.conv_weights\.(\d+)\.(weight|bias)": r"\1.propagate.kernels.\2.\3",
    r"(\w+)\.out_1\.": r"\1.hidden.",
    r"(\w+)\.out_2\.": r"\1.score.",
    r"weight_g$": "parametrizations.weight.original0",
    r"weight_v$": "parametrizations.weight.original1",
}


def gsmn_config(option: Options, kernels: int) -> GsmnConfig:
    """The official options as a GsmnConfig; the number of kernels is in the weights alone."""
    blocks = int(option("num_block"))
    for name, wanted in (("feat_dim", blocks), ("out_dim", 1)):
        if option.get(name, wanted) != wanted:
            raise SaccadeError(f"{option.path}: {name} is {option.get(name, wanted)}, the official code needs {wanted}")
    return GsmnConfig(
        **fragment_settings(option),
        blocks=blocks,
        hidden=int(option("hid_dim")),
        kernels=kernels,
        sharpness=float(option("lambda_softmax")),
        link_sharpness=float(option("lambda_softmax")),
        text_graph=option("is_sparse", GRAPHS),
        message_passing=False,
    )


def import_gsmn(path: Path | str, vocabulary: Vocabulary | None = None) -> Gsmn:
    """The model in an official checkpoint. Without its vocabulary, words are named by their numbers."""
    checkpoint = read_checkpoint(path)
    parts = state_dicts(checkpoint, path, "GSMN", ("pictures", "words", "the visual graph", "the textual graph"))
    regions, words, visual, textual = parts
    kernels = sum(re.fullmatch(r"graph_convolution_1\.conv_weights\.\d+\.weight", key) is not None for key in visual)
    if not kernels:
        raise SaccadeError(f"{path}: the visual graph has no graph_convolution_1.conv_weights")
    config = gsmn_config(Options.of(checkpoint, path, "GSMN"), kernels)
    model = Gsmn(config, fitting_vocabulary(vocabulary, words.get("embed.weight"), path))
    load_encoders(model, regions, words, path)
    encoders = {key: value for key, value in model.state_dict().items() if key.startswith(("regions.", "words."))}
    load_official(model, encoders | _renamed("visual_graph", visual) | _renamed("text_graph", textual), path)
    return model.eval()


def _renamed(part: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our names; what the official code keeps as a column of numbers is a list here."""
    named = {our_parameter(f"{part}.{key}"): value for key, value in state.items()}
    return {
        key: value.flatten() if key.startswith("places.") else value for key, value in named.items() if key is not None
    }


def our_parameter(official: str) -> str | None:
    """`visual_graph.out_1.bias` → `visual.hidden.bias`; None for a factor of weights that are normalised afterwards."""
    part, _, rest = official.partition(".")
    if rest == "graph_convolution_3.params":
        return None
    name = f"{PARTS[part]}.{rest}"
    if part in ("img_enc", "txt_enc"):
        return name
    for pattern, ours in NAMES.items():
        name = re.sub(pattern, ours, name)
    return name
