"""Official checkpoints of SCAN, VSRN, CAMP, IMRAM and GSMN, all of which grew out of one code base.

A `.pth.tar` is {epoch, model: state dicts, best_rsum, opt: the options of the command line, …}. Weights are named here
by part and name, `txt_enc.embed.weight`, as the goldens name gradients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import Options, need, read_checkpoint, state_dict
from saccade.interop.importer import (
    Importer,
    Reader,
    Source,
    Table,
    Term,
    WeightRow,
    choice,
    const,
    ignored,
    optional,
    to,
    unless,
)
from saccade.interop.words import numbered_words
from saccade.language import Vocabulary
from saccade.models import Camp, CampConfig, Gsmn, Imram, Scan, Vsrn, VsrnConfig

ENCODERS: dict[str, Term] = {  # region and word encoders
    "region_dim": "img_dim",
    "word_dim": "word_dim",
    "dim": "embed_size",
    "layers": "num_layers",
    "bidirectional": "bi_gru",
    "unit_regions": unless("no_imgnorm"),
    "unit_words": unless("no_txtnorm"),
}
REGION_ENCODER: dict[str, Term] = {
    "region_encoder": lambda source: (
        "weight_norm" if source.options.get("precomp_enc_type", "basic") == "weight_norm" else "linear"
    )
}
UNUSED = ignored("the official code drops what else the picture part holds")
ENCODER_WEIGHTS: Table = {"img_enc.fc.*": to("regions.fc.*"), "img_enc.*": UNUSED, "txt_enc.*": to("words.*")}
NORMALISERS = {
    "clipped_l2norm": "clipped_l2",
    "l2norm": "l2",
    "clipped_l1norm": "clipped_l1",
    "l1norm": "l1",
    "softmax": "softmax",
    "clipped": "clipped",
    "no_norm": "none",
}
NORMALISER = choice("raw_feature_norm", NORMALISERS)
POOLS = {"LogSumExp": "logsumexp", "Mean": "mean", "Max": "max", "Sum": "sum"}
QUERIES = {"t2i": "words", "i2t": "regions"}


def reads(**parts: str) -> Reader:
    """A file whose "model" is a list of state dicts, or one state dict where no parts are named.

    `parts` are the official names of the state dicts, in order, with what each is for.
    """

    def read(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
        checkpoint = read_checkpoint(path)
        if parts:
            found = need(checkpoint, "model", (list, tuple), path)
            if len(found) != len(parts):
                raise SaccadeError(
                    f'{path}: "model" has {len(found)} parts, a {title} checkpoint has {len(parts)} '
                    f"({', '.join(parts.values())})"
                )
            weights = {
                f"{part}.{name}": value
                for (part, what), state in zip(parts.items(), found, strict=True)
                for name, value in state_dict(state, path, f"the part for {what}").items()
            }
        else:
            weights = state_dict(need(checkpoint, "model", Mapping, path), path, '"model"')
        if "txt_enc.embed.weight" not in weights:
            raise SaccadeError(f"{path}: the word part has no embed.weight")
        size = len(weights["txt_enc.embed.weight"])
        if vocabulary is not None and len(vocabulary) != size:
            raise SaccadeError(f"{path} knows {size} words, the vocabulary has {len(vocabulary)}")
        options = Options.of(checkpoint, path, title)
        return Source(path, title, options, weights, vocabulary or numbered_words(size))

    return read


SCAN = Importer(
    system="scan",
    title="SCAN",
    model=Scan,
    reads=reads(img_enc="pictures", txt_enc="words"),
    config={
        **ENCODERS,
        **REGION_ENCODER,
        "queries": choice("cross_attn", QUERIES),
        "normaliser": NORMALISER,
        "sharpness": "lambda_softmax",
        "pool": choice("agg_func", POOLS),
        "pool_sharpness": "lambda_lse",
    },
    weights=ENCODER_WEIGHTS,
)


# VSRN. The caption generator is not in its checkpoints: it was thrown away after training. Where it was kept, its
# weights are given to the importer as `caption_model.*`.

VSRN_BLOCK = {"theta": "taking", "phi": "giving", "g": "message", "W.0": "mix", "W.1": "norm"}


def check_vsrn(source: Source) -> None:
    data = source.options("data_name")
    if not str(data).endswith("_precomp"):
        raise SaccadeError(f"{source.path}: data_name is {data!r}; models that saw whole photos cannot be imported")
    if has_generator(source):
        source.options("rnn_type", {"gru": "gru"})


def is_flickr(source: Source) -> bool:
    """The name of the data decides between the two official forms."""
    return bool(source.options("data_name") == "f30k_precomp")


def has_generator(source: Source) -> bool:
    return any(name.startswith("caption_model.") for name in source.weights)


def vsrn_weights(config: VsrnConfig) -> Table:
    return {
        **{
            f"img_enc.Rs_GCN_{n + 1}.{theirs}.*": to(f"blocks.{n}.{ours}.*")
            for n in range(config.blocks)
            for theirs, ours in VSRN_BLOCK.items()
        },
        "img_enc.img_rnn.*": to("memory.*"),
        "img_enc.bn.*": to("final_norm.*"),
        **ENCODER_WEIGHTS,
        "caption_model.encoder.vid2hid.*": to("caption.project.*"),
        "caption_model.encoder.rnn.*": to("caption.reader.*"),
        "caption_model.decoder.embedding.*": to("caption.embed.*"),
        "caption_model.decoder.attention.linear1.*": to("caption.attention.match.*"),
        "caption_model.decoder.attention.linear2.*": to("caption.attention.weigh.*"),
        "caption_model.decoder.rnn.*_l0": to("caption.writer.*"),
        "caption_model.decoder.out.*": to("caption.out.*"),
    }


VSRN = Importer(
    system="vsrn",
    title="VSRN",
    model=Vsrn,
    reads=reads(img_enc="pictures", txt_enc="words"),
    check=check_vsrn,
    config={
        **{name: ENCODERS[name] for name in ("region_dim", "word_dim", "dim", "layers")},
        "norm_before": lambda source: "none" if is_flickr(source) else "channels",
        "final_norm": is_flickr,
        "measure": choice("measure", {"cosine": "cosine", "order": "order"}),
        "unit_images": unless("no_imgnorm"),
        "use_abs": optional("use_abs", False),
        "caption_weight": lambda source: float(has_generator(source)),
        "caption_dim": optional("dim_hidden", 512),
        "caption_word_dim": optional("dim_word", 300),
        "caption_length": optional("max_len", 60),
        "caption_bidirectional": optional("bidirectional", False),
        "caption_dropout": optional("input_dropout_p", 0.2),
    },
    weights=vsrn_weights,
)


# CAMP, in four variants.

MAX_CAPTION_WORDS = 50  # every caption is padded to as many in the official code
VARIANTS: dict[str, dict[str, Any]] = {
    "gate_fusion_new": {},
    "cross_attention_new": {"fusion": False, "heads": 0, "text_length": MAX_CAPTION_WORDS},
    "gate_fusion": {"rounds": 1},
    "cross_attention": {"rounds": 1, "fusion": False},
}


def check_camp(source: Source) -> None:
    if source.options.get("self_attention", False):
        raise SaccadeError(
            f"{source.path}: self_attention is on, which pools each side before they meet; it is unknown here"
        )


def of_variant(name: str) -> Any:
    return lambda source: source.options("measure", VARIANTS).get(name, getattr(CampConfig, name))


def camp_heads(source: Source) -> int:
    """How many there are is in the weights alone."""
    given = int(of_variant("heads")(source))
    found = [len(weight) for name, weight in source.weights.items() if name.endswith("linear.2.weight")]
    return found[0] if found and given else given


def camp_weights(config: CampConfig) -> Table:
    table: dict[str, WeightRow | tuple[WeightRow, ...]] = {
        "img_enc.*": to("regions.*"),
        "txt_enc.*": to("words.*"),
        "sim.fc_out.0.*": to("judge.0.*"),
        "sim.fc_out.3.*": to("judge.2.*"),
    }
    pool, queries = "final_reduce", {"query": "query", "key": "key"}
    if config.rounds == 1:
        pool, queries = "reduce_layer", {"key": "query"}  # in the old form keys are queries too
    for number, (theirs, ours) in enumerate((("img", "regions"), ("txt", "words")), start=1):
        layer = f"sim.{pool}_{number}.linear"
        table |= {
            **{f"sim.{theirs}_{name}_fc.weight": to(f"look.{ours}_{our}.weight") for name, our in queries.items()},
            **{f"sim.weighted_{theirs}_{n}_fc.weight": to(f"look.{ours}_{n}_again.weight") for n in ("query", "key")},
            f"sim.fc_{number}.0.*": to(f"fuse.{ours}.*"),
            f"{layer}.0.*": to(f"pool.{ours}.hidden.*"),
            f"{layer}.2.weight": to(f"pool.{ours}.heads.weight"),
            f"{layer}.2.bias": ignored("a softmax is blind to it"),
        }
    return table


CAMP = Importer(
    system="camp",
    title="CAMP",
    model=Camp,
    reads=reads(img_enc="pictures", txt_enc="words", sim="similarity"),
    check=check_camp,
    config={
        **ENCODERS,
        **{name: of_variant(name) for name in ("rounds", "fusion", "text_length")},
        "heads": camp_heads,
    },
    weights=camp_weights,
)


# IMRAM. Its checkpoints hold the memories of both directions whatever their mode is.


def check_imram(source: Source) -> None:
    if not source.options("bi_gru"):
        raise SaccadeError(f"{source.path}: bi_gru is off, with which the official IMRAM cannot have been trained")


IMRAM = Importer(
    system="imram",
    title="IMRAM",
    model=Imram,
    reads=reads(),
    check=check_imram,
    config={  # agg_func, lambda_lse and cross_attn come from SCAN's command line and do nothing
        **ENCODERS,
        **REGION_ENCODER,
        "queries": choice("model_mode", {"text_IMRAM": "words", "image_IMRAM": "regions", "full_IMRAM": "both"}),
        "steps": "iteration_step",
        "unit_memory": unless("no_IMRAM_norm"),
        "normaliser": NORMALISER,
        "sharpness": "lambda_softmax",
    },
    weights={
        "img_enc.fc_local.*": to("regions.fc.*"),
        "txt_enc.*": to("words.*"),
        **{
            f"{theirs}_{way}.*": to(f"{side}_ask.memory.{ours}.*", optional=True)
            for way, side in QUERIES.items()
            for theirs, ours in (("gate", "gate"), ("linear", "candidate"))
        },
    },
)


# GSMN. The released code passes no messages between nodes; nor do models imported from it.

VISUAL = "visual_graph.graph_convolution_1"


def gsmn_kernels(source: Source) -> int:
    """How many there are is in the weights alone."""
    kernel = re.compile(re.escape(VISUAL) + r"\.conv_weights\.\d+\.weight")
    found = sum(kernel.fullmatch(name) is not None for name in source.weights)
    if not found:
        raise SaccadeError(f"{source.path}: the visual graph has no graph_convolution_1.conv_weights")
    return found


def check_gsmn(source: Source) -> None:
    for name, wanted in (("feat_dim", int(source.options("num_block"))), ("out_dim", 1)):
        given = source.options.get(name, wanted)
        if given != wanted:
            raise SaccadeError(f"{source.path}: {name} is {given}, the official code needs {wanted}")


def gsmn_graph(theirs: str, convolution: str, ours: str) -> Table:
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
    reads=reads(img_enc="pictures", txt_enc="words", visual_graph="the visual graph", text_graph="the textual graph"),
    check=check_gsmn,
    config={
        **ENCODERS,
        **REGION_ENCODER,
        "blocks": "num_block",
        "hidden": "hid_dim",
        "kernels": gsmn_kernels,
        "sharpness": "lambda_softmax",
        "link_sharpness": "lambda_softmax",
        "text_graph": choice("is_sparse", {False: "dense", True: "sparse"}),
        "message_passing": const(False),
    },
    weights={
        **ENCODER_WEIGHTS,
        **gsmn_graph("visual_graph", "graph_convolution_1", "visual"),
        **gsmn_graph("text_graph", "graph_convolution_3", "textual"),
        f"{VISUAL}.mean_rho": to("places.distance"),
        f"{VISUAL}.mean_theta": to("places.angle"),
        f"{VISUAL}.precision_rho": to("places.distance_width"),
        f"{VISUAL}.precision_theta": to("places.angle_width"),
        "text_graph.graph_convolution_3.params": ignored("it scales weights that are normalised afterwards"),
    },
)
