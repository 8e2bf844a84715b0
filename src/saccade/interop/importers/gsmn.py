"""Official GSMN checkpoints. The released code passes no messages between nodes; nor do models imported from it."""

from __future__ import annotations

import re

from saccade.core.errors import SaccadeError
from saccade.interop.importer import Importer, Source, choice, const
from saccade.interop.importers.matching import ENCODER_WEIGHTS, ENCODERS, REGION_ENCODER, reads_parts
from saccade.interop.mapping import Table, ignored, to
from saccade.models import Gsmn

GRAPHS = {False: "dense", True: "sparse"}


def kernels(source: Source) -> int:
    """How many there are is in the weights alone."""
    kernel = re.compile(r"visual_graph\.graph_convolution_1\.conv_weights\.\d+\.weight")
    found = sum(kernel.fullmatch(name) is not None for name in source.weights)
    if not found:
        raise SaccadeError(f"{source.path}: the visual graph has no graph_convolution_1.conv_weights")
    return found


def check(source: Source) -> None:
    for name, wanted in (("feat_dim", int(source.options("num_block"))), ("out_dim", 1)):
        given = source.options.get(name, wanted)
        if given != wanted:
            raise SaccadeError(f"{source.path}: {name} is {given}, the official code needs {wanted}")


def graph(theirs: str, convolution: str, ours: str) -> Table:
    return {
        f"{theirs}.{convolution}.conv_weights.*.*": to(f"{ours}.propagate.kernels.*.*"),
        **{
            f"{theirs}.{layer}.{name}": to(f"{ours}.{our_layer}.{our_name}")
            for layer, our_layer in (("out_1", "hidden"), ("out_2", "score"))
            for name, our_name in (
                ("bias", "bias"),
                ("weight_g", "parametrizations.weight.original0"),
                ("weight_v", "parametrizations.weight.original1"),
            )
        },
    }


GSMN = Importer(
    system="gsmn",
    title="GSMN",
    model=Gsmn,
    reads=reads_parts(
        {
            "img_enc": "pictures",
            "txt_enc": "words",
            "visual_graph": "the visual graph",
            "text_graph": "the textual graph",
        }
    ),
    check=check,
    config={
        **ENCODERS,
        **REGION_ENCODER,
        "blocks": "num_block",
        "hidden": "hid_dim",
        "kernels": kernels,
        "sharpness": "lambda_softmax",
        "link_sharpness": "lambda_softmax",
        "text_graph": choice("is_sparse", GRAPHS),
        "message_passing": const(False),
    },
    weights={
        **ENCODER_WEIGHTS,
        **graph("visual_graph", "graph_convolution_1", "visual"),
        **graph("text_graph", "graph_convolution_3", "textual"),
        "visual_graph.graph_convolution_1.mean_rho": to("places.distance"),
        "visual_graph.graph_convolution_1.mean_theta": to("places.angle"),
        "visual_graph.graph_convolution_1.precision_rho": to("places.distance_width"),
        "visual_graph.graph_convolution_1.precision_theta": to("places.angle_width"),
        "text_graph.graph_convolution_3.params": ignored("it scales weights that are normalised afterwards"),
    },
)
