"""GSMN against what the official code computed: embeddings, both levels of matching, both graphs, losses, gradients."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from saccade.batch import ImageCode, TextBatch, TextCode
from saccade.interop.matching.cases import compare_gradient_norms, compare_metrics, open_cases, take_inputs
from saccade.interop.matching.gsmn import import_gsmn, our_parameter
from saccade.interop.options import Options
from saccade.interop.verification import EMBEDDING, LOSS, SIMILARITY, Case, verifier
from saccade.models import Gsmn, GsmnConfig
from saccade.nn import block_match, likeness_weights, polar_coordinates, triplet_loss

ROUGH = 1e-4  # allowed between float32 and float64
NEGATIVES = {"sum": "all", "max": "hardest"}  # the official names of our two losses


@verifier("gsmn")
def verify_gsmn(folder: Path) -> Iterator[Case]:
    for case, model, options in open_cases(folder, import_gsmn):
        yield _verify_case(case, model, options)


def _verify_case(case: Case, model: Gsmn, options: Options) -> Case:
    """Codes in float32, their comparison in float64: blocks of few numbers may nearly cancel and cost us digits."""
    given = take_inputs(case)
    linked = replace(given.texts, links=_links(case, given.texts))
    with torch.no_grad():
        images, texts = model.encode_images(given.images), model.encode_texts(linked)
        batch = model.encode_images(given.batch_images), model.encode_texts(given.batch_texts)
        case.compare_stored({"img_emb": images.regions, "cap_emb": texts.words}, EMBEDDING)
        case.compare_stored({"batch_img_emb": batch[0].regions, "batch_cap_emb": batch[1].words}, EMBEDDING)
        case.compare_stored({"cap_emb_len": given.texts.lengths}, 0.0)
        exact = copy.deepcopy(model).double()
        image_code, text_code = images.to(dtype=torch.float64), texts.to(dtype=torch.float64)
        _verify_nodes(case, exact, image_code, text_code, linked)
        _verify_graphs(case, exact, image_code, text_code)
        table = exact.similarity(image_code, text_code)
        case.compare_stored({"sims": table}, SIMILARITY)
        compare_metrics(case, table.numpy())
        case.check("sims in float32", float((model.similarity(images, texts) - table).abs().max()), ROUGH)
        scores = exact.similarity(batch[0].to(dtype=torch.float64), batch[1].to(dtype=torch.float64))
        case.compare_stored({"batch_scores": scores}, SIMILARITY)
    margin = float(options.get("margin", 0.2))
    for stored, negatives in NEGATIVES.items():
        loss = triplet_loss(model(given.batch_images, given.batch_texts), margin, negatives)  # type: ignore[arg-type]
        case.compare_stored({f"loss_{stored}": loss}, LOSS)
        compare_gradient_norms(case, stored, loss, model, our_parameter)
    return case


def _links(case: Case, texts: TextBatch) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The stored dependencies as the official code uses them: the first, the root's, and those beyond the end dropped.

    Its indices count words from one, and so, with <start> at place 0, they are places.
    """
    if "depends" not in case.stored:
        return ()
    pairs, counts = case.take("depends"), case.take("depends_len")
    return tuple(
        tuple((int(a), int(b)) for a, b in of_text[1:count] if min(a, b) >= 0 and max(a, b) < length)
        for of_text, count, length in zip(pairs, counts, texts.lengths.tolist(), strict=True)
    )


def _verify_nodes(case: Case, model: Gsmn, images: ImageCode, texts: TextCode, given: TextBatch) -> None:
    """Node level, for the captions whose matching vectors are stored; and the edges of their graphs."""
    adjacency = given.adjacency() | torch.eye(given.tokens.shape[1], dtype=torch.bool)
    wanted = {int(name[1]) for key in case.stored if (name := re.fullmatch(r"\w+__cap(\d+)", key))}
    for caption in sorted(wanted):
        code = replace(texts, links=None).select([caption]).trimmed()
        length = code.words.shape[1]
        match = block_match(images, code, model.config.blocks, model.form)
        likeness = likeness_weights(code.words, code.mask, model.config.link_sharpness)
        found: dict[str, Tensor] = {
            "vnode_mvector": match.regions[:, 0],
            "tnode_mvector": match.words[:, 0],
            "adjacency": adjacency[caption, :length, :length],
            "word_intra_relation": likeness / likeness.sum(dim=-1, keepdim=True),  # ours have rows of length one
        }
        case.compare_stored({f"{key}__cap{caption}": value for key, value in found.items()}, SIMILARITY)


def _verify_graphs(case: Case, model: Gsmn, images: ImageCode, texts: TextCode) -> None:
    """Structure level: the kernels, each graph alone, the other text graph, and boxes that belong to other pictures."""
    assert images.boxes is not None
    case.compare_stored({"pseudo_coord": polar_coordinates(images.boxes)}, SIMILARITY)
    case.compare_stored({"gaussian_weights": model.places(images.boxes, images.mask)}, SIMILARITY)
    other = "dense" if model.config.text_graph == "sparse" else "sparse"
    owner = torch.arange(len(images)) // (len(texts) // len(images))
    found = {
        "sims_visual_graph": _variant(model, graphs="visual").similarity(images, texts),
        "sims_text_graph": _variant(model, graphs="textual").similarity(images, texts),
        "sims_text_graph_other_mode": _variant(model, graphs="textual", text_graph=other).similarity(images, texts),
        "sims_misaligned_boxes": model.similarity(replace(images, boxes=images.boxes[owner]), texts),
    }
    case.compare_stored(found, SIMILARITY)


def _variant(model: Gsmn, **settings: str) -> Gsmn:
    """The same weights under other settings."""
    config: GsmnConfig = replace(model.config, **settings)
    variant = Gsmn(config, model.vocabulary).double().eval()
    variant.load_state_dict({key: value for key, value in model.state_dict().items() if key in variant.state_dict()})
    return variant
