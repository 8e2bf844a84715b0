"""SGAE checkpoints: `modelID.pth` is a plain state dict, `infos_ID.pkl` lies beside it, and the dictionary in
`memory_cellID.npz`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_arrays
from saccade.interop.importer import Importer, Source, const, optional
from saccade.interop.importers import image_captioning as family
from saccade.interop.mapping import Table, add_to, blocks, ignored, to
from saccade.language import Vocabulary
from saccade.models import Sgae, SgaeConfig

DICTIONARY = "memory_cell"


def read(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    source = family.reads("lstm_mem4")(path, vocabulary, title)
    source.weights[DICTIONARY] = read_dictionary(path.with_name(f"{path.stem.replace('model', DICTIONARY)}.npz"))
    return source


def read_dictionary(path: Path) -> Tensor:
    if not path.is_file():
        raise SaccadeError(f"{path} does not exist: the dictionary is not in the checkpoint but in that file beside it")
    found = load_arrays(path).get(DICTIONARY)
    if found is None or found.ndim != 2 or found.dtype.kind != "f":
        raise SaccadeError(f'{path} holds no dictionary: expected a table of numbers named "{DICTIONARY}"')
    return torch.from_numpy(found)


def look_weights(attention: str, ours: str) -> Table:
    """How the state asks. Its bias is added to every region's key here."""
    return {
        f"{attention}.h2att.weight": to(f"{ours}.state.weight"),
        f"{attention}.h2att.bias": add_to(f"{ours}.region.bias"),
        f"{attention}.alpha_net.weight": to(f"{ours}.weigh.weight"),
        f"{attention}.alpha_net.bias": ignored(family.BLIND),
    }


def weights(config: SgaeConfig) -> Table:
    return {
        **family.weights(config),
        DICTIONARY: to("dictionary.entries"),
        **family.top_down_weights("ssg_core", "sentence_lstms"),
        **family.top_down_weights("rela_core", "picture_lstms"),
        **look_weights("ssg_core.attention", "sentence_look"),
        **look_weights("rela_core.attention_rela", "picture_look"),
        **look_weights("rela_core.attention_mem", "reworded_look"),
        "ssg_ctx2att.weight": to("sentence_look.region.weight"),
        "ssg_ctx2att.bias": add_to("sentence_look.region.bias"),
        "rela_ctx2att.weight": (to("picture_look.region.weight"), to("reworded_look.region.weight")),
        "rela_ctx2att.bias": (add_to("picture_look.region.bias"), add_to("reworded_look.region.bias")),
        "ssg_obj_obj_fc.*": to("sentence_graph.own.*"),
        "ssg_sbj_rela_fc.*": to("sentence_graph.as_subject.*"),
        "ssg_obj_rela_fc.*": to("sentence_graph.as_object.*"),
        "ssg_rela_fc.*": to("sentence_graph.relation.*"),
        "ssg_attr_fc.*": to("sentence_graph.attribute.*"),
        "embed2vis.*": to("picture_graph.word.*"),
        "rela_sbj_rela_fc.*": to("picture_graph.convolution.as_subject.*"),
        "rela_obj_rela_fc.*": to("picture_graph.convolution.as_object.*"),
        "rela_rela_fc.*": to("picture_graph.convolution.relation.*"),
        "rela_attr_fc.0.weight": to(  # there an attribute comes before its thing
            "picture_graph.convolution.attribute.0.weight", blocks(1, 0, axis=1)
        ),
        "rela_attr_fc.0.bias": to("picture_graph.convolution.attribute.0.bias"),
        "img2sg.fc1.0.*": to("to_sentences.0.*"),
        "img2sg.fc2.0.*": to("to_sentences.3.*"),
        "img2sg.fc3.*": to("to_sentences.6.*"),
        **family.OTHERS,
    }


SGAE = Importer(
    system="sgae",
    title="SGAE",
    model=Sgae,
    reads=read,
    check=family.check,
    brings_words=True,
    config={
        **family.CONFIG,
        "entries": lambda source: len(source.weights[DICTIONARY]),
        "fusion": const("released"),
        "relations": optional("use_rela", False),
        "peek": const(True),
    },
    weights=weights,
)
