"""Clips of MSVD one after the other: a sentence happens exactly where its clip lies; the world's moments as clips."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from saccade.batch import FrameBatch
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.datasets.made.world_videos import open_world_moment_clips, open_world_moments
from saccade.data.datasets.videos.msvd import NEIGHBOURHOODS, open_msvd_moments
from saccade.data.records import CaptionedImages, Moments
from saccade.features import open_moments

CLIPS = 30  # two of each YouTube video


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Frame f of clip n has the feature (n, f); sentences say which clip they are of."""
    rows, ids = ["split\tclip\tstart_s\tend_s\tn\tcaption"], []
    for split in ("train", "dev", "test"):
        for n in range(CLIPS):
            length = 2 + n % 7
            ids.append(f"{split}{n // 2}_{10 * n}_{10 * n + length}")
            own = [f"{split}\t{ids[-1]}\t{10 * n}\t{10 * n + length}\t{k}" for k in range(10)]
            rows += [f"{row}\tsentence {k} of clip {n}" for k, row in enumerate(own)]
    (tmp_path / "captions.tsv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    numbers = np.arange(len(ids)) % CLIPS
    features = np.stack(np.broadcast_arrays(numbers[:, None], np.arange(20)[None]), axis=2).astype(np.float16)
    np.savez(tmp_path / "features.npz", ids=np.array(ids), features=features)
    return tmp_path


def clip_of(text: str) -> int:
    return int(text.split()[-1])


def test_every_sentence_is_asked_once_and_happens_where_its_clip_lies(folder: Path) -> None:
    found = open_msvd_moments("dev", folder)
    assert Counter(found.texts) == Counter(f"sentence {k} of clip {n}" for n in range(CLIPS) for k in range(10))
    owners = found.pictures.image_of_text.tolist()
    for text, owner, ((start, end),) in zip(found.texts, owners, found.spans, strict=True):
        video = found.pictures.regions.get(owner)
        inside = (video.times[:, 0] >= start - 1e-3) & (video.times[:, 1] <= end + 1e-3)
        assert {*video.features[inside, 0].tolist()} == {clip_of(text)}
        assert clip_of(text) not in video.features[~inside, 0]
        assert end - start == 2 + clip_of(text) % 7
        assert len(video.features) == video.seconds  # a frame a second


def test_neighbours_are_of_other_videos_and_drawn_by_the_seed(folder: Path) -> None:
    found, again, other = (open_msvd_moments("dev", folder, seed) for seed in (0, 0, 1))
    assert found.spans == again.spans
    assert found.pictures.images.ids == again.pictures.images.ids
    assert found.pictures.images.ids != other.pictures.images.ids
    counts: Counter[int] = Counter()
    for n in range(len(found.images)):
        clips = list(dict.fromkeys(found.pictures.regions.get(n).features[:, 0].tolist()))
        assert 4 <= len(clips) <= 12
        assert len({clip // 2 for clip in clips}) == len(clips)
        counts.update(clips)
    assert {*counts.values()} == {NEIGHBOURHOODS}


def test_frames_come_in_batches_with_their_times(folder: Path) -> None:
    config = DataConfig("msvd", folder, in_memory=True)
    found: Moments[CaptionedImages] = open_moments(config, "test")
    batch = found.pictures.regions.batch([0, 1])
    assert isinstance(batch, FrameBatch)
    assert batch.seconds is not None
    assert found.pictures.regions.get(1).seconds == float(batch.seconds[1])


def test_too_few_clips_and_videos_without_features_are_refused(folder: Path) -> None:
    (folder / "features.npz").unlink()
    with pytest.raises(SaccadeError, match="no frame features"):
        open_msvd_moments("dev", folder)


def test_the_worlds_moments_are_clips_of_their_own() -> None:
    whole, cut = open_world_moments("dev", pictures=20), open_world_moment_clips("dev", pictures=20)
    assert Counter(cut.texts) == Counter(
        text for text, spans in zip(whole.texts, whole.spans, strict=True) for _ in spans
    )
    place = cut.texts.index(whole.texts[0])
    start, end = whole.spans[0][0]
    n = int(cut.image_of_text[place])
    frames = cut.pictures[n]()
    assert cut.seconds[n] == pytest.approx(end - start, abs=0.3)
    assert len(frames) == pytest.approx(4 * (end - start), abs=1)
    original = whole.pictures.pictures[int(whole.pictures.image_of_text[0])]()
    assert np.array_equal(frames, original[int(4 * start) : int(4 * start) + len(frames)])
