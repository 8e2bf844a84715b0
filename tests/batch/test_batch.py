"""Batches: padding, selecting and joining keep every item, its mask and its box."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import Alignment, Batch, FrameBatch, ImageCode, RegionBatch, TextBatch, TextCode, stack

COUNTS = (3, 1, 0, 2)  # a picture without regions is a picture too


def regions(counts: tuple[int, ...] = COUNTS, dim: int = 5, seed: int = 0) -> RegionBatch:
    random = np.random.default_rng(seed)
    return RegionBatch.of(
        [random.normal(size=(n, dim)).astype(np.float32) for n in counts],
        [random.random((n, 4)).astype(np.float32) for n in counts],
        [f"{seed}-{i}" for i in range(len(counts))],
    )


def texts() -> TextBatch:
    return TextBatch.of([[1, 4, 2], [1, 5, 6, 7, 2]], [["<start>", "a", "<end>"], ["<start>", "b", "c", "d", "<end>"]])


def alignment(pairs: int, words: int, parts: int) -> Alignment:
    return Alignment(
        torch.rand(pairs, words, parts),
        torch.rand(pairs),
        torch.ones(pairs, words, dtype=torch.bool),
        torch.ones(pairs, parts, dtype=torch.bool),
        word_score=torch.rand(pairs, words),
    )


def test_ragged_pictures_are_padded_with_zeros_and_masked() -> None:
    features = [np.full((n, 2), i + 1.0) for i, n in enumerate(COUNTS)]
    boxes = [np.full((n, 4), 0.5) for n in COUNTS]
    batch = RegionBatch.of(features, boxes, list("abcd"))
    assert batch.features.dtype == batch.boxes.dtype == torch.float32
    assert batch.mask.sum(1).tolist() == list(COUNTS)
    for i, n in enumerate(COUNTS):
        assert (batch.features[i, :n] == i + 1).all()
        assert (batch.features[i, n:] == 0).all()
        assert (batch.boxes[i, n:] == 0).all()
    assert batch.ids == ("a", "b", "c", "d")
    assert len(batch) == 4


def test_no_pictures_make_an_empty_batch() -> None:
    assert len(RegionBatch.of([], [])) == 0
    assert len(TextBatch.of([])) == 0


@pytest.mark.parametrize(
    ("features", "boxes"),
    [((3, 5), (1, 4)), ((3, 5), (3, 5)), ((3, 5), (4,)), ((3, 1), (3, 4)), ((3,), (3, 4))],
)
def test_boxes_and_features_that_do_not_fit_are_never_broadcast(
    features: tuple[int, ...], boxes: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="picture 1: features"):
        RegionBatch.of([np.zeros((2, 5)), np.zeros(features)], [np.zeros((2, 4)), np.zeros(boxes)])


def test_a_box_list_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        RegionBatch.of([np.zeros((2, 5))] * 2, [np.zeros((2, 4))])


def test_texts_keep_their_tokens_lengths_and_words() -> None:
    batch = texts()
    assert batch.lengths.tolist() == [3, 5]
    assert batch.tokens.tolist() == [[1, 4, 2, 0, 0], [1, 5, 6, 7, 2]]
    assert batch.words[1] == ("<start>", "b", "c", "d", "<end>")


def test_padding_adds_masked_zeros_only() -> None:
    for batch in (regions(), texts()):
        padded = batch.pad(4)
        assert padded.mask.shape[1] == batch.mask.shape[1] + 4
        assert not padded.mask[:, -4:].any()
        assert batch.pad(0).mask.equal(batch.mask)
    wider = regions().pad(4)
    assert wider.features[:, :-4].equal(regions().features)
    assert wider.boxes[:, :-4].equal(regions().boxes)
    assert not wider.features[:, -4:].any()
    assert texts().pad(2).lengths.equal(texts().lengths)


@pytest.mark.parametrize(
    ("index", "positions"),
    [
        ([2, 0, 0], [2, 0, 0]),
        ([], []),
        ([-1], [3]),
        (range(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2]),
        (slice(-2, None), [2, 3]),
        (torch.tensor([3, 1]), [3, 1]),
        (np.array([3, 1]), [3, 1]),
        (torch.tensor([True, False, False, True]), [0, 3]),
        (np.array([False, True, True, False]), [1, 2]),
        ([True, False, True, False], [0, 2]),
    ],
)
def test_selecting_keeps_order_and_takes_masks_for_masks(index: object, positions: list[int]) -> None:
    batch = regions()
    chosen = batch.select(index)  # type: ignore[arg-type]
    assert chosen.ids == tuple(batch.ids[i] for i in positions)
    assert chosen.features.equal(batch.features[positions])
    assert chosen.mask.equal(batch.mask[positions])
    assert chosen.boxes.equal(batch.boxes[positions])


def test_selecting_leaves_what_is_absent_absent() -> None:
    code = TextCode(torch.rand(3, 2, 4), torch.ones(3, 2, dtype=torch.bool))
    assert code.select([1]).pooled is None
    assert RegionBatch(*(getattr(regions(), n) for n in ("features", "mask", "boxes"))).select([0]).ids == ()


def test_stacking_undoes_cutting() -> None:
    whole = regions()
    parts = [whole.select([i]) for i in range(len(whole))]
    joined = stack(parts)
    assert joined.features.equal(whole.features)
    assert joined.ids == whole.ids


def test_stacking_pads_the_shorter_batch_and_masks_the_padding() -> None:
    short, long = regions((1, 2), seed=1), regions((4,), seed=2)
    joined = stack([short, long])
    assert joined.features.shape == (3, 4, 5)
    assert joined.mask.sum(1).tolist() == [1, 2, 4]
    assert joined.boxes[:2, :2].equal(short.boxes)
    assert joined.boxes[2].equal(long.boxes[0])
    assert joined.ids == ("1-0", "1-1", "2-0")
    words = stack([texts().select([0]).pad(0), texts()])
    assert words.lengths.tolist() == [3, 3, 5]
    assert words.words[0] == words.words[1]


def test_stacking_codes_joins_pooled_vectors_unpadded() -> None:
    def code(images: int, count: int) -> ImageCode:
        return ImageCode(
            torch.rand(images, count, 6), torch.ones(images, count, dtype=torch.bool), torch.rand(images, 6)
        )

    first, second = code(2, 3), code(1, 5)
    joined = stack([first, second])
    assert joined.regions.shape == (3, 5, 6)
    assert joined.pooled is not None
    assert joined.pooled.equal(torch.cat([first.pooled, second.pooled]))  # type: ignore[list-item]


def test_stacking_refuses_codes_of_different_models() -> None:
    with pytest.raises(RuntimeError):
        stack([regions((2,), dim=5), regions((2,), dim=6)])


def test_stacking_alignments_pads_words_and_regions_apart() -> None:
    first, second = alignment(2, words=7, parts=3), alignment(1, words=4, parts=5)
    joined = stack([first, second])
    assert joined.weights.shape == (3, 7, 5)
    assert joined.word_mask.sum(1).tolist() == [7, 7, 4]
    assert joined.region_mask.sum(1).tolist() == [3, 3, 5]
    assert joined.region_mask.shape == (3, 5)
    assert joined.weights[:2, :, :3].equal(first.weights)
    assert joined.weights[2, :4].equal(second.weights[0])
    assert joined.score.equal(torch.cat([first.score, second.score]))
    assert joined.region_score is None


def test_moving_changes_the_floats_only() -> None:
    batch = texts().to("cpu", torch.float64)
    assert batch.tokens.dtype == torch.long
    moved = regions().to(dtype=torch.bfloat16)
    assert moved.features.dtype == moved.boxes.dtype == torch.bfloat16
    assert moved.mask.dtype == torch.bool
    assert moved.ids == regions().ids
    same: Tensor = regions().to().features
    assert same.equal(regions().features)


def test_batches_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        regions().ids = ()  # type: ignore[misc]


def test_a_slice_of_a_batch_is_a_view_of_it(toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    for batch, first in ((toy_images, "features"), (toy_texts, "tokens")):
        for index in (slice(1, 3), slice(None, None, 2), slice(-2, None), slice(None, None, -1)):
            cut, copied = batch.select(index), batch.select(list(range(4))[index])
            for name in vars(cut):
                one, other = getattr(cut, name), getattr(copied, name)
                assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
        assert getattr(batch.select(slice(1, 3)), first)._base is getattr(batch, first)


@dataclass(frozen=True)
class Clips(Batch):
    """A batch of somebody else's: what is ragged in it follows from its annotations alone."""

    frames: Float[Tensor, "clip frame dim"]
    speeds: Float[Tensor, "clip frame frame"]
    whole: Float[Tensor, "clip frame_dim"]
    corners: Float[Tensor, "clip 4"] | None = None
    rate: int = 1


def test_which_axes_are_ragged_is_read_from_the_annotations() -> None:
    def clips(count: int, frames: int) -> Clips:
        shape = (count, frames)
        return Clips(torch.ones(*shape, 5), torch.ones(*shape, frames), torch.ones(count, 6), torch.ones(count, 4))

    joined = stack([clips(1, 2), clips(2, 3)])
    assert (joined.frames.shape, joined.speeds.shape, joined.whole.shape) == ((3, 3, 5), (3, 3, 3), (3, 6))
    assert joined.frames[0].sum() == 2 * 5
    assert joined.speeds[0].sum() == 2 * 2
    assert joined.corners is not None
    cut = joined.resize(frame=1)
    assert (cut.frames.shape, cut.speeds.shape, cut.whole.shape) == ((3, 1, 5), (3, 1, 1), (3, 6))
    with pytest.raises(RuntimeError):  # `whole` is of fixed size
        stack([clips(1, 2), replace(clips(1, 2), whole=torch.ones(1, 7))])


def test_frames_are_the_pieces_of_a_film_strip() -> None:
    times = [np.array([[0.0, 1.0], [1.0, 2.5]]), np.array([[0.0, 4.0]])]
    frames = FrameBatch.of_times([np.ones((2, 3)), np.ones((1, 3))], times, [2.5, 8.0], ["a", "b"])
    assert isinstance(frames, RegionBatch)
    assert frames.boxes[0, 1].tolist() == pytest.approx([0.4, 0, 1, 1])
    assert frames.times[0].tolist() == [[0, 1], [1, 2.5]]
    assert frames.select([1]).times[0, 0].tolist() == [0, 4]
    joined = stack([frames.select([1]), frames.select([0])])
    assert isinstance(joined, FrameBatch)
    assert joined.seconds is not None
    assert joined.seconds.tolist() == [8, 2.5]
    assert isinstance(frames.pad(2), FrameBatch)
    assert frames.pad(2).times.shape == (2, 4, 2)
