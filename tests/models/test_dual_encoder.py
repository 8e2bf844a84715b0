"""Dual encoders of transformers as matchers, against the library's own scores and processors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import saccade
from saccade.batch import FrameBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.models import find_model, load_model
from saccade.models.dual_encoder import DualEncoder, LateInteraction, word_places
from saccade.tasks.grounding.predict import PictureGrounder
from saccade.tasks.predict import extractor_of
from saccade.vision.dual import head_alone, open_network, shape_within
from saccade.vision.extractors import load_extractor
from tests.tiny_duals import PATCH, SIDE, processor_of, save_dual

KINDS = ("clip", "siglip", "siglip2", "colpali")
TEXTS = ["a man rides a unicorn on the beach", "Two dogs.", "a red shirt"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("duals")
    return {kind: save_dual(place / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    """Wide, tall, square and small ones, smooth enough that resizing means something."""
    random = np.random.default_rng(3)
    sizes = ((90, 61), (40, 77), (32, 32), (33, 33), (20, 24))
    small = [Image.fromarray(random.integers(0, 255, (6, 6, 3), dtype=np.uint8)) for _ in sizes]
    return [picture.resize(size, Image.Resampling.BICUBIC) for picture, size in zip(small, sizes, strict=True)]


@torch.no_grad()
def library_scores(kind: str, folder: Path, pictures: list[Image.Image]) -> torch.Tensor:
    """[picture text] as transformers computes them from files and sentences."""
    import transformers

    network = open_network(str(folder))
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
    if kind == "colpali":
        processor = transformers.ColPaliProcessor(image_processor=processor_of(kind), tokenizer=tokeniser)
        seen = processor(images=pictures, return_tensors="pt")
        seen.pop("labels")
        read = processor(text=TEXTS, return_tensors="pt", padding=True)
        return processor.score_retrieval(network(**read).embeddings, network(**seen).embeddings).T
    padding: Any = {"padding": "max_length", "max_length": 24} if kind != "clip" else {"padding": True}
    read = tokeniser(TEXTS, return_tensors="pt", truncation=True, **padding)
    return network(**read, **processor_of(kind)(images=pictures, return_tensors="pt")).logits_per_image


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_library(kind: str, folders: dict[str, Path], pictures: list[Image.Image]) -> None:
    matcher = saccade.load(folders[kind])
    expected = library_scores(kind, folders[kind], pictures)
    found = torch.from_numpy(matcher.score(pictures, TEXTS))
    assert expected.std() > 0.05  # or anything would be equal
    assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["clip", "siglip", "siglip2"])
def test_pixels_are_those_of_the_library(kind: str, folders: dict[str, Path], pictures: list[Image.Image]) -> None:
    extractor = load_extractor(f"dual:{folders[kind]}")
    for picture in pictures:
        expected = processor_of(kind)(images=[picture], return_tensors="pt")["pixel_values"][0]
        seen, _ = extractor.form.cut(extractor.prepare(extractor.prepare(picture)))  # twice is the same as once
        found = extractor.form.form.normalise(torch.from_numpy(seen.copy())[None])
        if kind == "siglip2":
            from saccade.vision.dual import patched

            found = patched(found, PATCH)["pixel_values"]
            expected = expected[: found.shape[1]]
        assert_close(found[0], expected, atol=1e-5, rtol=1e-5)


def test_patches_of_a_cut_picture_lie_where_they_were_cut(folders: dict[str, Path]) -> None:
    extractor = load_extractor(f"dual:{folders['clip']}")
    wide = Image.new("RGB", (2 * SIDE, SIDE))
    regions = extractor.extract([wide])
    assert regions.features.shape == (1, 17, 24)
    assert_close(regions.boxes[0, 0], torch.tensor([0.25, 0.0, 0.375, 0.25]))
    assert_close(regions.boxes[0, 15], torch.tensor([0.625, 0.75, 0.75, 1.0]))
    assert_close(regions.boxes[0, 16], torch.tensor([0.25, 0.0, 0.75, 1.0]))  # all that was seen
    with pytest.raises(SaccadeError, match="cannot look at boxes"):
        extractor.extract([wide], boxes=[np.array([[0.0, 0.0, 1.0, 1.0]])])


def test_a_patch_of_siglip_is_what_its_head_makes_of_it_alone(folders: dict[str, Path]) -> None:
    head = open_network(str(folders["siglip"])).vision_model.head
    states = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    alone = torch.stack([head(states[:, n : n + 1]) for n in range(5)], dim=1)
    assert_close(head_alone(head, states), alone, atol=1e-5, rtol=1e-5)


def test_a_patch_of_clip_attends_to_itself(folders: dict[str, Path]) -> None:
    """With the attention of its last layer switched off by hand, the library gives the same patches."""
    network = open_network(str(folders["clip"]))
    extractor = load_extractor(f"dual:{folders['clip']}")
    picture = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
    pixels = extractor.form.form.normalise(torch.from_numpy(picture)[None])
    layer = network.vision_model.encoder.layers[-1]

    def only_itself(hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        return layer.self_attn.out_proj(layer.self_attn.v_proj(hidden_states)), None

    usual = layer.self_attn.forward
    try:
        layer.self_attn.forward = only_itself
        states = network.vision_model(pixels).last_hidden_state[:, 1:]
    finally:
        layer.self_attn.forward = usual
    expected = network.visual_projection(network.vision_model.post_layernorm(states))
    assert_close(extractor.extract([picture]).features[:, :-1], expected, atol=1e-5, rtol=1e-5)


def test_words_of_several_pieces_are_joined(folders: dict[str, Path]) -> None:
    for kind in KINDS:
        model = load_model(folders[kind], DualEncoder)
        texts = model.read(TEXTS)
        assert texts.words[0] == ("a", "man", "rides", "a", "unicorn", "on", "the", "beach")
        assert texts.words[1] == ("two", "dogs", ".")
        joined = texts.joins[0].sum(dim=1)
        assert joined[1] == (3 if kind == "siglip2" else 1), kind  # transformers reads its table as byte pairs
        assert joined[4] >= 7, kind  # unicorn, letter by letter
        read = {n for n in range(texts.pieces.shape[1]) if texts.joins[0, :, n].any()}
        assert 0 not in read or kind.startswith("siglip"), kind  # what begins a sentence is no word
        assert len(read) < int(texts.piece_mask[0].sum()), kind
        padded = model.encode_texts(texts.pad(3))
        assert_close(padded.words[:, : texts.mask.shape[1]], model.encode_texts(texts).words)


def test_words_are_found_in_a_sentence() -> None:
    assert word_places('It’s a "dog".', ["it", "'s", "a", "``", "dog", "''", "."]) == [
        (0, 2),
        (2, 4),
        (5, 6),
        (7, 8),
        (8, 11),
        (11, 12),
        (12, 13),
    ]


def test_unknown_words_are_named(folders: dict[str, Path]) -> None:
    words = load_model(folders["siglip"]).vocabulary
    assert words.unknown("a man and a 象") == ["象"]
    assert words.check("a man.") == []
    with pytest.raises(SaccadeError, match="none of the words"):
        words.check("象")
    with pytest.raises(SaccadeError, match="empty"):
        words.check(" . ")
    long = load_model(folders["clip"]).vocabulary
    assert long.unknown(" ".join(["a"] * 30))  # beyond what it reads


@pytest.mark.parametrize("kind", KINDS)
def test_each_word_has_a_place(
    kind: str, folders: dict[str, Path], pictures: list[Image.Image], tmp_path: Path
) -> None:
    matcher = saccade.load(folders[kind])
    why = matcher.explain(pictures[0], TEXTS[0])
    assert why.words == tuple(TEXTS[0].split())
    assert why.weights.shape == (8, len(why.boxes))
    assert len(why.boxes) == 16 if kind != "siglip2" else len(why.boxes) <= 16
    assert_close(why.score, float(matcher.score(pictures[:1], TEXTS[:1])[0, 0]), atol=1e-4, rtol=1e-4)
    assert (why.probability is not None) == kind.startswith("siglip")  # whose score is a logit
    if why.probability is not None:
        assert_close(why.probability, float(torch.tensor(why.score).sigmoid()), atol=1e-6, rtol=1e-6)
    why.save(tmp_path / "why.png")
    found = PictureGrounder(matcher.model).ground(pictures[0], TEXTS[0])
    assert [one.text for one in found] == ["a man", "a unicorn", "the beach"]
    assert all(0 <= side <= 1 for one in found for side in one.box)


def test_padding_and_batches_change_no_score(folders: dict[str, Path], pictures: list[Image.Image]) -> None:
    for kind in KINDS:
        matcher = saccade.load(folders[kind])
        regions = matcher.extract(pictures)
        model = matcher.model
        texts = model.encode_texts(model.read(TEXTS))
        together = model.similarity(model.encode_images(regions), texts)
        padded = model.similarity(model.encode_images(regions.pad(3)), texts)
        apart = torch.cat([model.similarity(model.encode_images(matcher.extract([p])), texts) for p in pictures])
        assert_close(padded, together, atol=1e-5, rtol=1e-5)
        assert_close(apart, together, atol=1e-4, rtol=1e-4)


def test_every_frame_of_a_video_is_a_region(folders: dict[str, Path]) -> None:
    model = load_model(folders["siglip"], DualEncoder)
    strip = RegionBatch(torch.randn(1, 5, 32), torch.ones(1, 5, dtype=torch.bool), torch.zeros(1, 5, 4))
    codes = model.encode_images(FrameBatch.of_strips(strip, [2.0]))
    assert codes.regions.shape == (1, 5, 32)
    assert_close(codes.pooled.norm(dim=1), torch.ones(1))
    assert model.similarity(codes, model.encode_texts(model.read(TEXTS))).shape == (1, 3)


def test_one_network_serves_matcher_and_extractor(folders: dict[str, Path]) -> None:
    matcher = saccade.load(folders["siglip"])
    assert matcher.extractor.network is matcher.model.network
    assert extractor_of(folders["siglip"]) == f"dual:{folders['siglip']}"
    assert isinstance(load_model(folders["colpali"]), LateInteraction)
    assert find_model(folders["clip"])[1] is DualEncoder


def test_a_picture_that_keeps_its_shape_has_at_most_so_many_patches() -> None:
    from transformers.models.siglip2.image_processing_pil_siglip2 import get_image_size_for_max_num_patches

    for height, width in ((480, 640), (1, 4000), (33, 32), (17, 900)):
        expected = get_image_size_for_max_num_patches(height, width, 16, 256)
        assert shape_within(height, width, 16, 256) == expected
        assert shape_within(*expected, 16, 256) == expected


def test_what_cannot_be_used_is_refused_in_a_sentence(folders: dict[str, Path], tmp_path: Path) -> None:
    def broken(kind: str, name: str) -> Path:
        return Path(shutil.copytree(folders[kind], tmp_path / name))

    pickled = broken("clip", "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(SaccadeError, match="safetensors"):
        saccade.load(pickled)
    bare = broken("siglip", "bare")
    (bare / "preprocessor_config.json").unlink()
    with pytest.raises(SaccadeError, match="how the model wants its pictures"):
        _ = saccade.load(bare).extractor
    mute = broken("siglip", "mute")
    (mute / "tokenizer.json").unlink()
    with pytest.raises(SaccadeError, match="no tokeniser"):
        saccade.load(mute)
    wide = broken("clip", "wide")
    values = json.loads((wide / "preprocessor_config.json").read_text())
    (wide / "preprocessor_config.json").write_text(json.dumps({**values, "crop_size": {"height": 64, "width": 64}}))
    with pytest.raises(SaccadeError, match="crop_size"):
        _ = saccade.load(wide).extractor
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(SaccadeError, match="a bert of transformers, of which only clip"):
        saccade.load(other)
    with pytest.raises(SaccadeError, match="no dual encoder"):
        load_extractor(f"dual:{other}")
    with pytest.raises(SaccadeError, match="is transformers'"):
        load_model(folders["clip"]).save_pretrained(tmp_path / "again")


def test_a_box_stays_within_what_the_model_sees(folders: dict[str, Path]) -> None:
    """CLIP cuts the middle from a wide picture; a phrase is a rectangle of patches there."""
    grounder = PictureGrounder(load_model(folders["clip"], DualEncoder))
    wide = np.random.default_rng(1).integers(0, 255, (SIDE, 2 * SIDE, 3), dtype=np.uint8)
    boxes = np.array([one.box for one in grounder.ground(wide, "a man rides a horse")])
    assert (boxes[:, 0] >= 0.25).all()
    assert (boxes[:, 2] <= 0.75).all()
    assert_close(boxes[:, [0, 2]] * 8 % 1, np.zeros((2, 2)), atol=1e-6, rtol=0)  # whole patches
    assert (boxes[:, 2] - boxes[:, 0] > 0.13).any()  # and more than one
