"""SGAE against what the official code computed: nodes of both graphs, both dictionary readings, and all three modes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.batch import CaptionState, RegionBatch, SceneGraphBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.decoding import DecodingConfig, beam_search, greedy
from saccade.interop.captioning.sgae import OfficialSgae, read_sgae
from saccade.interop.verification import Case, load_arrays, verifier
from saccade.language.vocabulary import START
from saccade.models import Sgae
from saccade.nn.picture_graph import PlainPictureGraph
from saccade.nn.scene_graph import GraphNodes
from saccade.nn.seen_graph import SeenGraph

TOLERANCE = 1e-5
MODE = re.compile(r"mode(\d)_(?:rela(\d)_)?")


@verifier("sgae")
def verify_sgae(folder: Path) -> Iterator[Case]:
    for path in sorted(folder.glob("model*.pth")):
        official = read_sgae(path)
        official.model.double()
        case = Case(path.stem, load_arrays(folder / "io.npz"))
        with torch.no_grad():
            given = take_inputs(case, official)
            case.compare("memory_cell", official.model.dictionary.entries, 0.0)
            _verify_nodes(case, official, given)
            for prefix in dict.fromkeys(found[0] for key in case.stored if (found := MODE.match(key))):
                _verify_mode(case, official, given, prefix)
        yield case


@dataclass(frozen=True)
class Inputs:
    """Pictures with their graphs, one sentence graph for each, and captions: several of each picture."""

    images: RegionBatch
    whole: Float[Tensor, "image dim"]
    graph: SceneGraphBatch  # of the sentences
    labels: Tensor
    label_mask: Tensor


def take_inputs(case: Case, official: OfficialSgae) -> Inputs:
    def tensor(key: str) -> Tensor:
        return torch.from_numpy(case.take(key))

    def words(ids: Tensor) -> Tensor:
        return official.words.ours[ids.long().clamp(min=0)]

    def mask(key: str) -> Tensor:
        return tensor(key) > 0

    def relations(key: str, mask: Tensor) -> Tensor:
        table = tensor(key).long().clamp(min=0)
        return torch.cat([table[:, :, :2], words(table[:, :, 2:])], dim=2) * mask[:, :, None]

    regions, related = mask("att_masks"), mask("rela_masks")
    attributes, said = tensor("attr_matrix").long(), mask("attr_masks")
    seen = SceneGraphBatch(
        torch.zeros_like(regions, dtype=torch.long),
        regions,
        relations("rela_matrix", related),
        related,
        attributes[:, :, 0] * said[:, :, 0],  # a row is a box and its attributes, and the box counts in the mask
        words(attributes[:, :, 1:]),
        said[:, :, 1:] & said[:, :, :1],
    )
    features = tensor("att_feats").double()
    images = RegionBatch(features, regions, torch.zeros(*regions.shape, 4, dtype=torch.float64), graph=seen)
    things, linked = mask("ssg_obj_masks"), mask("ssg_rela_masks")
    every = torch.arange(things.shape[1]).expand_as(things)
    qualities = mask("ssg_attr_masks") & things[:, :, None]
    read = SceneGraphBatch(
        words(tensor("ssg_obj")),
        things,
        relations("ssg_rela_matrix", linked),
        linked,
        every,
        words(tensor("ssg_attr")),
        qualities,
    )
    return Inputs(images, tensor("fc_feats").double(), read, tensor("labels"), tensor("label_masks").double())


def together(values: Float[Tensor, "row node dim"], mask: Bool[Tensor, "row node"]) -> Float[Tensor, "row found dim"]:
    """Nodes without gaps between things, relations and attributes, as the official code lays them out."""
    order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(mask.sum(dim=1).max())]
    there = mask.gather(1, order)[:, :, None]
    return values.gather(1, order[:, :, None].expand(-1, -1, values.shape[2])) * there


def counted(mask: Bool[Tensor, "row node"]) -> Float[Tensor, "row found"]:
    return together(mask[:, :, None].double(), mask)[:, :, 0]


def _verify_nodes(case: Case, official: OfficialSgae, given: Inputs) -> None:
    model = official.with_relations(True)
    graph = given.images.graph
    assert graph is not None
    assert isinstance(model.picture_graph, PlainPictureGraph)
    regions = model.regions(given.images.features, given.images.mask)
    seen = model.picture_graph(regions, graph, model.words, model.hear)
    read = model.read_graph(given.graph)
    merged, read_merged = (together(nodes.vectors, nodes.mask) for nodes in (seen, read))
    related = model.picture_graph.word(model.hear(graph.relations[:, :, 2])) * graph.relation_mask[:, :, None]
    asked = model.to_sentences(merged)  # of padding too, as it was stored
    parts = zip(("obj", "rela", "attr"), split(read, given.graph), strict=True)
    attributed = given.graph.attribute_mask.any(dim=2)
    found = {
        "att_embed": regions,
        "rela_feats_in": related,
        **dict(zip(("gcn_att_feats", "gcn_rela_feats", "gcn_attr_feats"), split(seen, graph), strict=True)),
        "gcn_merged": merged,
        "gcn_merged_mask": counted(seen.mask),
        "img2sg": asked,
        "mem_read_img": model.dictionary(asked),
        **{f"ssg_{kind}_feats": part if kind != "attr" else together(part, attributed) for kind, part in parts},
        "ssg_attr_masks_new": counted(attributed),
        "ssg_merged": read_merged,
        "ssg_merged_mask": counted(read.mask),
        "mem_read_ssg": model.dictionary(read_merged),
    }
    for key, value in found.items():
        if key in case.stored:
            case.compare(key, fitted(value, case.stored[key].shape), TOLERANCE)


def split(nodes: GraphNodes, graph: SceneGraphBatch) -> tuple[Tensor, ...]:
    """Things, relations, attributes."""
    sizes = [part.shape[1] for part in (graph.objects, graph.relations, graph.described)]
    return torch.split(nodes.vectors, sizes, dim=1)


def fitted(value: Tensor, shape: tuple[int, ...], axis: int = 1) -> Tensor:
    """More or fewer zeros behind along an axis: the official code pads to the longest of other things."""
    size, wanted = value.shape[axis], shape[axis]
    if size < wanted:
        missing = list(value.shape)
        missing[axis] = wanted - size
        return torch.cat([value, value.new_zeros(missing)], dim=axis)
    cut, rest = value.narrow(axis, 0, wanted), value.narrow(axis, wanted, size - wanted)
    return value if bool(rest.any()) else cut


def _verify_mode(case: Case, official: OfficialSgae, given: Inputs, prefix: str) -> None:
    """One way of using the model: 0 and 1 tell sentences from their graphs, without and with D, 2 tells of pictures."""
    matched = MODE.match(prefix)
    assert matched
    mode, relations = matched.groups()
    model = official.model if relations is None else official.with_relations(relations == "1")
    if mode == "2":
        state = model.start_seeing(given.images, given.whole)
    elif mode in "01":
        tokens = torch.zeros(len(given.images), 0, dtype=torch.long)
        state = model.start_reading(
            TextBatch(tokens, tokens.bool(), graph=given.graph), given.images, mode == "1", given.whole
        )
    else:
        raise SaccadeError(f"{case.name}: there is no mode {mode}, only 0, 1 and 2")
    if f"{prefix}logprobs" in case.stored:
        _verify_teaching(case, official, given, model, state, prefix)
    if f"{prefix}greedy" in case.stored:
        _verify_greedy(case, official, model, state, prefix)
    for key in [key for key in case.stored if re.fullmatch(rf"{prefix}beam\d+", key)]:
        _verify_beam(case, official, model, state, key, int(key.rpartition("beam")[2]))


def _verify_teaching(
    case: Case, official: OfficialSgae, given: Inputs, model: Sgae, state: CaptionState, prefix: str
) -> None:
    """The official loop ends before the first column without a word: what it did not come to stays zero."""
    state = state.repeat(len(given.labels) // len(given.images))
    words = official.words.ours[given.labels[:, :-1]]
    words[:, 0] = START
    blank = (given.labels[:, 1:-1].sum(dim=0) == 0).nonzero().flatten()
    told = model.tell(state, words[:, : 1 + int(blank[0]) if len(blank) else None])
    spoken = fitted(official.words.columns_back(told.log_probabilities), given.labels[:, 1:].shape)
    case.compare(f"{prefix}logprobs", spoken, TOLERANCE)
    if f"{prefix}loss" in case.stored:
        missed = -spoken.gather(2, given.labels[:, 1:, None])[:, :, 0] * given.label_mask[:, 1:]
        case.compare(f"{prefix}loss", missed.sum() / given.label_mask[:, 1:].sum(), TOLERANCE)
    seen = state.seen
    assert isinstance(seen, SeenGraph)
    for key, looked in (("attn_ssg", "nodes"), ("attn_rela", "nodes"), ("attn_mem", "reworded")):
        if f"{prefix}{key}" in case.stored:
            shape = case.stored[f"{prefix}{key}"].shape
            weights = together(told.extras[looked].mT, seen.mask).mT
            case.compare(f"{prefix}{key}", fitted(fitted(weights, shape), shape, axis=2), TOLERANCE)


def _verify_greedy(case: Case, official: OfficialSgae, model: Sgae, state: CaptionState, prefix: str) -> None:
    """Log-probabilities are kept while any sentence goes on; those that have ended hear 0 and still say something."""
    stored = case.stored[f"{prefix}greedy"].shape
    said = greedy(model, state, DecodingConfig(longest=stored[1], unknown=True)).words
    case.compare(f"{prefix}greedy", fitted(official.words.sentences_back(said), stored), 0)
    if f"{prefix}greedy_logp" not in case.stored:
        return
    heard = torch.full((len(state),), START)
    ended, kept = torch.zeros(len(state), dtype=torch.bool), [torch.zeros(len(state), 0, dtype=torch.float64)]
    for _ in range(stored[1]):
        log_probabilities, thought = model.step(heard, state)
        chance, word = official.words.columns_back(log_probabilities).max(dim=1)
        ended |= word == 0
        if bool(ended.all()):
            break
        heard, state = official.words.ours[word * ~ended], thought.state
        kept.append(chance[:, None])
    case.compare(f"{prefix}greedy_logp", fitted(torch.cat(kept, dim=1), stored), TOLERANCE)


def _verify_beam(case: Case, official: OfficialSgae, model: Sgae, state: CaptionState, name: str, beam: int) -> None:
    """The last word is never said there: it was UNK once, before the words of scene graphs came behind it."""
    stored = case.stored[name].shape
    last = int(official.words.ours[-1])
    decoded = beam_search(model, state, DecodingConfig(longest=stored[1], beam=beam, unknown=True, never=(last,)))
    words = fitted(official.words.sentences_back(decoded.words), stored).view(-1, beam, stored[1])
    found = {
        "": words[:, 0],
        "_logp": fitted(decoded.best().log_probabilities, stored),
        "_seqs": words,
        "_scores": decoded.score.view(-1, beam),
    }
    for key, value in found.items():
        if f"{name}{key}" in case.stored:
            case.compare(f"{name}{key}", value, TOLERANCE if key in ("_logp", "_scores") else 0)
