"""One sweep takes every matcher of the registry through what all matchers must do.

`test_every_captioner.py` does the same for captioners; a dense captioner has no like yet, and its own tests alone.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from saccade.batch import RegionBatch, TextBatch, stack
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.language import Vocabulary
from saccade.models import (
    Answerer,
    Captioner,
    ClickPredictor,
    ConceptLearner,
    DenseCap,
    Detector,
    Fusion,
    Matcher,
    MomentFinder,
    ProgramParser,
    Referrer,
    Relater,
    Scan,
    ScanConfig,
    Vse,
    VseConfig,
    entries,
    load_model,
)
from saccade.models.base.matcher import FragmentMatcher
from toy_runs import IMAGE_LAYERS, TINY

SMALL = {"region_dim": 12, "word_dim": 7, "dim": 10}
SWITCHES: dict[str, list[dict[str, Any]]] = {
    "scan": [
        {},
        {"queries": "regions", "sharpness": 4.0, "pool_sharpness": 5.0},
        {"pool": "mean"},
        {"queries": "regions", "pool": "max", "normaliser": "softmax"},
        {"attention": "max", "pool": "sum"},
        {"bidirectional": False, "layers": 2, "region_encoder": "weight_norm", "slope": 0.0},
        {"unit_regions": False, "unit_words": False, "normaliser": "l1"},
    ],
    "imram": [
        {},
        {"queries": "words", "steps": 2, "unit_memory": True},
        {"queries": "regions", "sharpness": 4.0, "normaliser": "softmax"},
        {"memory": "mlp", "pool": "sum"},
        {"queries": "words", "memory": "add", "budget_mb": 0},
        {"memory": "none", "steps": 2},
        {"steps": 1, "region_encoder": "weight_norm", "slope": 0.0},
    ],
    "camp": [
        {},
        {"fusion": False, "heads": 0},
        {"fusion": False, "heads": 0, "text_length": 50},
        {"rounds": 1},
        {"rounds": 1, "fusion": False},
        {"gate": False, "budget_mb": 0, "message_loss": 1.0},
        {"rounds": 1, "gate": False, "heads": 0, "unit_regions": True, "unit_words": True},
        {"heads": 1, "text_length": 9, "bidirectional": False, "region_encoder": "weight_norm"},
    ],
    "gsmn": [
        {"blocks": 5},
        {"blocks": 5, "text_graph": "dense", "link_sharpness": 3.0, "budget_mb": 0},
        {"blocks": 2, "hidden": 6, "kernels": 3, "graphs": "visual"},
        {"blocks": 10, "hidden": 8, "kernels": 4, "graphs": "textual", "slope": 0.0},
        {"blocks": 5, "message_passing": False},
        {"blocks": 5, "structure": False, "bidirectional": False, "region_encoder": "weight_norm"},
    ],
    "multilevel": [
        {"hidden": (8,), "levels": (5, 7)},
        {"hidden": (), "levels": (4, 4, 4), "word_encoder": "lstm", "attention": "softmax", "pool": "sum"},
        {
            "hidden": (6, 6),
            "levels": (5, 7),
            "attention": "nowhere",
            "nowhere": 2,
            "unit_sentence": False,
            "budget_mb": 0,
        },
        {"hidden": (), "levels": (5, 7), "read": "last", "tables": "words", "standardise": True, "slope": 0.1},
    ],
    "align2ground": [
        {"hidden_dim": 8, "state_dim": 9},
        {"hidden_dim": 8, "state_dim": 9, "local": "topk", "top": 2, "sharpness": 10.0, "aggregate": "gru"},
        {"hidden_dim": 8, "state_dim": 9, "local": "max", "phrase": "states", "text_pool": "mean", "budget_mb": 0},
        {"state_dim": 9, "score": "pooled", "phrase": "states", "bidirectional": True},
    ],
    "hgr": [
        {"actions": 2, "entities": 3},
        {"actions": 2, "entities": 3, "word_encoder": "lstm", "roles": "all", "fusion": "scores", "phrase_pool": "sum"},
        {"actions": 2, "entities": 3, "levels": ("event",), "budget_mb": 0},
        {"actions": 2, "entities": 3, "levels": ("action", "entity"), "graph_attention": False, "share_levels": True},
        {"actions": 2, "entities": 3, "levels": ("entity", "event"), "graph_layers": 0, "roles": "none", "layers": 2},
        {
            "actions": 2,
            "entities": 3,
            "graph_layers": 2,
            "attention_dim": 10,
            "layer_norm": False,
            "bidirectional": False,
            "standardise": True,
            "max_frames": 3,
        },
    ],
    "interbert_matching": [
        TINY,
        {**TINY, "outputs": ("match",), "positions": "mlp", "fusion": "sum", "standardise": True},
        {**TINY, "framework": "unicoder_vl", "packed": False, "image_layers": 0},
        {**TINY, "framework": "vilbert", "cross_layers": 2, "checkpoint_activations": True},
    ],
    "pixelbert_matching": [
        {k: v for k, v in TINY.items() if k not in IMAGE_LAYERS},
        {
            **{k: v for k, v in TINY.items() if k not in IMAGE_LAYERS},
            "segments": 2,
            "image_norm": True,
            "rows": 3,
            "columns": 4,
        },
    ],
    "vse": [{}, {"text_pool": "mean", "bidirectional": True}],
    "vsrn": [
        {},
        {"norm_before": "none", "final_norm": True, "caption_weight": 0.0},
        {"measure": "order", "use_abs": True, "caption_bidirectional": True},
        {"blocks": 2, "affinity": "softmax", "norm_after": "regions", "global_reasoning": False, "text_pool": "mean"},
        {"blocks": 0, "norm_before": "regions", "norm_after": "none", "layers": 2, "unit_images": False},
    ],
}
CASES = [
    pytest.param(entry.name, switches, id=f"{entry.name}-{'-'.join(map(str, switches.values())) or 'paper'}")
    for entry in entries()
    if entry.task == "matching"
    for switches in SWITCHES.get(entry.name, [{}])  # a model without a row is swept as its paper has it
]


def build(name: str, switches: dict[str, Any], vocabulary: Vocabulary) -> Matcher:
    torch.manual_seed(1)
    model = next(e.model for e in entries() if e.name == name)
    sizes = {k: v for k, v in SMALL.items() if k in {f.name for f in fields(model.Config)}}
    built = model(replace(model.Config(), **sizes, **switches), vocabulary, "world")
    assert isinstance(built, Matcher)
    return built


@torch.no_grad()
def _move_every_weight(model: Matcher) -> None:
    """Some papers begin a block as the identity, where its inner weights have no gradient yet."""
    model.eval()
    for weight in model.parameters():
        weight.add_(0.1 * torch.randn_like(weight))


def test_every_registered_model_is_swept() -> None:
    assert {e.name for e in entries() if e.task == "matching"} >= set(SWITCHES)
    pictures = (Answerer, Matcher, Captioner, ConceptLearner, DenseCap, Detector, ProgramParser, Referrer, Relater)
    kinds = (*pictures, MomentFinder, ClickPredictor, Fusion)
    assert all(issubclass(e.model, kinds) for e in entries()), "a new kind needs its sweep"


@pytest.mark.parametrize(("name", "switches"), CASES)
class TestEveryMatcher:
    def test_scores_every_pair_and_gradients_reach_every_parameter(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
    ) -> None:
        model = build(name, switches, vocabulary)
        images, texts = model.encode_images(toy_images), model.encode_texts(toy_texts)
        similarity = model.similarity(images, texts)
        assert similarity.shape == (4, 4)
        assert similarity.isfinite().all()
        _move_every_weight(model)
        images, texts = model.encode_images(toy_images), model.encode_texts(toy_texts)
        pull = (torch.randn(4, 4) * model.similarity(images, texts)).sum()  # a ranking loss leaves a last bias alone
        torch.stack([pull, *model.own_losses(images, toy_texts, torch.arange(4)).values()]).sum().backward()
        silent = [k for k, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
        assert not silent

    def test_padding_never_changes_a_similarity(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
    ) -> None:
        model = build(name, switches, vocabulary).double().eval()
        images, texts = toy_images.to(dtype=torch.float64), toy_texts
        torch.testing.assert_close(model(images.pad(7), texts.pad(5)), model(images, texts), rtol=0, atol=1e-12)

    def test_one_picture_and_one_sentence_score_as_in_the_batch(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
    ) -> None:
        model = build(name, switches, vocabulary).double().eval()
        images = toy_images.to(dtype=torch.float64)
        whole = model(images, toy_texts)
        for i, j in ((0, 1), (2, 2), (3, 0)):
            torch.testing.assert_close(model(images.select([i]), toy_texts.select([j]))[0, 0], whole[i, j])

    def test_alignment_is_a_distribution_and_its_score_the_similarity(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
    ) -> None:
        model = build(name, switches, vocabulary).double().eval()
        images, texts = model.encode_images(toy_images.to(dtype=torch.float64)), model.encode_texts(toy_texts)
        alignment = model.align(images, texts)
        assert alignment.weights.shape == (4, toy_texts.tokens.shape[1], toy_images.mask.shape[1])
        torch.testing.assert_close(alignment.score, model.similarity(images, texts).diagonal())
        words_ask = switches.get("queries", "words") == "words"
        asked = alignment.weights.sum(dim=2 if words_ask else 1)
        real = toy_texts.mask if words_ask else toy_images.mask
        torch.testing.assert_close(asked[real], torch.ones_like(asked[real]))
        assert (alignment.weights * ~toy_images.mask[:, None]).abs().max() == 0

    def test_a_pair_by_the_papers_equations_scores_as_in_the_table(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
    ) -> None:
        model = build(name, switches, vocabulary).double().eval()
        if isinstance(model, FragmentMatcher):
            images, texts = model.encode_images(toy_images.to(dtype=torch.float64)), model.encode_texts(toy_texts)
            found = model.pair(*model.prepare(images, texts))
            torch.testing.assert_close(found, model.similarity(images, texts), rtol=0, atol=1e-12)

    def test_nothing_to_compare_is_an_empty_table(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
    ) -> None:
        model = build(name, switches, vocabulary).eval()
        with torch.no_grad():
            images, texts = model.encode_images(toy_images), model.encode_texts(toy_texts)
            assert model.similarity(images.select(slice(0)), texts).shape == (0, 4)
            assert model.similarity(images, texts.select(slice(0))).shape == (4, 0)

    def test_saved_and_loaded_it_scores_the_same(
        self,
        name: str,
        switches: dict[str, Any],
        vocabulary: Vocabulary,
        toy_images: RegionBatch,
        toy_texts: TextBatch,
        tmp_path: Path,
    ) -> None:
        model = build(name, switches, vocabulary).eval()
        model.save_pretrained(tmp_path / "model")
        for loaded in (load_model(tmp_path / "model"), type(model).from_pretrained(str(tmp_path / "model"))):
            assert type(loaded) is type(model)
            assert loaded.config == model.config
            assert loaded.vocabulary == vocabulary
            assert loaded.extractor == "world"
            assert torch.equal(loaded(toy_images, toy_texts), model(toy_images, toy_texts))
        assert {p.name for p in (tmp_path / "model").iterdir()} == {
            "config.json",
            "model.safetensors",
            "vocabulary.json",
            "README.md",
        }

    def test_pickled_and_copied_it_scores_the_same(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
    ) -> None:
        model = build(name, switches, vocabulary).eval()
        for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert torch.equal(copied(toy_images, toy_texts), model(toy_images, toy_texts))
            assert all(own is not other for own, other in zip(copied.parameters(), model.parameters(), strict=True))

    @pytest.mark.parametrize("dtype", ["bfloat16", torch.float16, torch.float64])
    def test_it_is_loaded_in_the_numbers_asked_for(
        self,
        name: str,
        switches: dict[str, Any],
        vocabulary: Vocabulary,
        toy_images: RegionBatch,
        toy_texts: TextBatch,
        tmp_path: Path,
        dtype: torch.dtype | str,
    ) -> None:
        model = build(name, switches, vocabulary).eval()
        model.save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path, dtype=dtype)
        number = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        kept = loaded.keep_in_float32 if number.itemsize == 2 else ()
        assert {p.dtype for k, p in loaded.named_parameters() if not k.startswith(kept or "-")} == {number}
        half = number.itemsize == 2
        with torch.no_grad(), torch.autocast("cpu", number if half else torch.bfloat16, enabled=half):
            scores = loaded(toy_images if half else toy_images.to(dtype=number), toy_texts)
        wanted = model(toy_images, toy_texts)
        torch.testing.assert_close(scores.float(), wanted, rtol=0.05, atol=0.1)

    def test_a_seed_fixes_everything(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
    ) -> None:
        first, second = (build(name, switches, vocabulary)(toy_images, toy_texts) for _ in range(2))
        assert torch.equal(first, second)

    def test_codes_can_be_made_in_parts(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
    ) -> None:
        model = build(name, switches, vocabulary).double().eval()
        images = toy_images.to(dtype=torch.float64)
        parts = stack([model.encode_images(images.select([0])), model.encode_images(images.select([1, 2, 3]))])
        texts = stack([model.encode_texts(toy_texts.select([i])) for i in range(4)])
        torch.testing.assert_close(model.similarity(parts, texts), model(images, toy_texts))


@pytest.mark.parametrize("mixed", [False, True], ids=["float32", "mixed precision"])
@pytest.mark.parametrize("name", [entry.name for entry in entries() if hasattr(entry.model.Config(), "budget_mb")])
def test_a_table_in_tiles_learns_what_one_in_one_piece_does(
    name: str, mixed: bool, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Scores and the gradient of every parameter, where each pair is a tile that is computed again."""
    found = []
    for budget_mb in (0, 256):
        model = build(name, {**SWITCHES[name][0], "budget_mb": budget_mb}, vocabulary)
        _move_every_weight(model)
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            table = model(toy_images, toy_texts)
        table.sin().sum().backward()
        found.append([table, *(p.grad for p in model.parameters() if p.grad is not None)])
    tolerance = 0.05 if mixed else 1e-4
    for tiled, whole in zip(*found, strict=True):
        assert (tiled - whole).abs().max() <= tolerance * whole.abs().max() + 1e-6


def test_sum_max_is_equation_9(vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    """Σ over words of the best region's cosine, from the definition."""
    model = build("scan", {"attention": "max", "pool": "sum"}, vocabulary).double()
    images, texts = model.encode_images(toy_images.to(dtype=torch.float64)), model.encode_texts(toy_texts)
    for i in range(4):
        for t in range(4):
            cosine = texts.words[t][texts.mask[t]] @ images.regions[i][images.mask[i]].T
            torch.testing.assert_close(model.similarity(images, texts)[i, t], cosine.max(dim=1).values.sum())


class TestBadModelFolders:
    @pytest.fixture
    def folder(self, vocabulary: Vocabulary, tmp_path: Path) -> Path:
        build("scan", {}, vocabulary).save_pretrained(tmp_path / "scan")
        return tmp_path / "scan"

    def test_unknown_keywords_and_numbers(self, folder: Path) -> None:
        with pytest.raises(SaccadeError, match='takes no "torch_dtype"; did you mean "dtype"'):
            Scan.from_pretrained(folder, torch_dtype="float16")
        with pytest.raises(SaccadeError, match="dtype=int8: a type of floating-point numbers was expected"):
            Scan.from_pretrained(folder, dtype="int8")

    def test_another_model(self, folder: Path) -> None:
        with pytest.raises(SaccadeError, match="holds a model of scan, a vse was asked for"):
            Vse.from_pretrained(str(folder))

    def test_weights_of_another_configuration(self, folder: Path, vocabulary: Vocabulary) -> None:
        other = Scan(ScanConfig(**{**SMALL, "dim": 6}), vocabulary)
        other.save_pretrained(folder.parent / "other")
        (folder.parent / "other" / "model.safetensors").replace(folder / "model.safetensors")
        with pytest.raises(SaccadeError, match=r"model\.safetensors is not for this scan configuration"):
            load_model(folder)

    def test_weights_cut_short(self, folder: Path) -> None:
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:200])
        with pytest.raises(SaccadeError, match="damaged or cut short"):
            load_model(folder)

    def test_a_pickle_in_place_of_weights(self, folder: Path, vocabulary: Vocabulary) -> None:
        torch.save(Vse(VseConfig(**SMALL), vocabulary).state_dict(), folder / "model.safetensors")
        with pytest.raises(SaccadeError, match="damaged or cut short"):
            load_model(folder)

    def test_an_unknown_setting(self, folder: Path) -> None:
        described = read_json(folder / "config.json")
        described["config"]["sharpnes"] = 3.0
        write_json(folder / "config.json", described)
        with pytest.raises(SaccadeError, match=r'no setting ".*sharpnes"; did you mean "sharpness"'):
            load_model(folder)

    def test_no_model_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(SaccadeError, match="is no model folder"):
            load_model(tmp_path)

    def test_missing_weights(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        with pytest.raises(SaccadeError, match="does not exist"):
            load_model(folder)

    def test_a_missing_parameter(self, folder: Path) -> None:
        state = safetensors.torch.load_file(folder / "model.safetensors")
        del state["regions.fc.bias"]
        safetensors.torch.save_file(state, folder / "model.safetensors")
        with pytest.raises(SaccadeError, match=r"regions\.fc\.bias is missing in the file"):
            load_model(folder)
