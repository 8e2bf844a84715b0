"""The world's videos: what is told happens when it is told, sentences are true, their roles exact, and twins differ."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.data.datasets.made.world_videos import open_world_moments, open_world_videos
from saccade.world.scene import Thing
from saccade.world.videos.captions import KINDS, WORDINGS, VideoCaption, is_true
from saccade.world.videos.films import Clip, FilmConfig, draw_frames, frame_times, make_clips
from saccade.world.videos.story import TICK, Story

CONFIG = FilmConfig(videos=160, hard_groups=30)
ROLES = {"V", "ARG0", "ARG1", "ARG2", "ARGM-DIR", "ARGM-LOC", "ARGM-TMP"}


@pytest.fixture(scope="module")
def clips() -> tuple[Clip, ...]:
    return make_clips(CONFIG, "train")


@pytest.fixture(scope="module")
def twins() -> tuple[Clip, ...]:
    return make_clips(CONFIG, "hard")


def test_a_seed_gives_the_same_stories_and_another_gives_others(clips: tuple[Clip, ...]) -> None:
    make_clips.cache_clear()
    assert make_clips(CONFIG, "train") == clips
    other = make_clips(FilmConfig(videos=160, seed=1), "train")
    assert sum(a.captions == b.captions for a, b in zip(clips, other, strict=True)) < 3
    assert len({clip.story.id for clip in clips}) == len(clips) == 128
    with pytest.raises(SaccadeError, match='no split "novel"'):
        make_clips(CONFIG, "novel")


def test_every_verb_is_told_and_every_kind_of_sentence_said(clips: tuple[Clip, ...]) -> None:
    verbs = Counter(event.verb for clip in clips for event in clip.story.events)
    assert verbs.keys() == WORDINGS.keys()
    assert min(verbs.values()) >= 3
    assert {caption.kind for clip in clips for caption in clip.captions} == set(KINDS)


def seen(story: Story, time: float) -> list[Thing | None]:
    """The things that are in the picture then."""
    return [thing if -0.3 < thing.x < 1.3 else None for thing in story.at(time).things]


def test_the_picture_moves_while_something_happens_and_never_else(clips: tuple[Clip, ...]) -> None:
    for clip in clips[:24]:
        story = clip.story
        for time in np.arange(0, story.seconds - TICK, TICK):
            now, later = (seen(story, float(t)) for t in (time, time + TICK))
            busy = any(e.start <= time + TICK and time < e.end for e in story.events)
            assert now == later or busy, (story.id, time)
        for event in story.events:
            edges = {story.at(float(t)).things for t in np.arange(event.start, event.end + 0.01, TICK / 2)}
            assert len(edges) > (1 if event.verb == "turn" else 2), event


def test_things_are_where_the_last_event_left_them() -> None:
    found = Counter[str]()
    for clip in make_clips(FilmConfig(videos=400), "train"):
        story = clip.story
        for event in story.events:
            later = [e for e in story.events if e.start >= event.start and e is not event and e.things & event.things]
            if later:
                continue
            things = story.at(story.seconds).things
            own = things[event.agent]
            if event.verb == "leave":
                assert own.x < -0.2 or own.x > 1.2
            elif event.verb == "hide":
                assert event.goal is not None
                assert own.depth > things[event.goal].depth
                assert abs(own.x - things[event.goal].x) < 0.01
            elif event.verb == "turn":
                assert own.colour == event.value != story.scene.things[event.agent].colour
            elif event.verb == "give":
                held = {(r.subject, r.object) for r in story.at(story.seconds).relations}
                assert (event.goal, event.patient) in held
            elif event.verb == "chase":
                assert event.patient is not None
                run = story.at((event.start + 3 * event.end) / 4).things
                one, two = run[event.agent], run[event.patient]
                assert (one.pose, two.pose, one.facing) == ("running", "running", two.facing)
                assert (two.x - one.x) * one.facing > 0, "the one that chases is behind"
            found[event.verb] += 1
    assert all(found[verb] > 2 for verb in ("leave", "hide", "turn", "give", "chase"))


def test_roles_are_the_words_they_say(clips: tuple[Clip, ...]) -> None:
    for clip in clips:
        for caption in clip.captions:
            assert VideoCaption.from_json(json.loads(json.dumps(caption.to_json()))) == caption
            for clause in caption.clauses:
                event = clip.story.events[clause.event]
                verbs = {dict(wording)["V"] for wording in WORDINGS[event.verb]}
                assert " ".join(caption.words[clause.verb.start : clause.verb.end]) in verbs
                assert {role.name for role in clause.roles} <= ROLES
                named = [role.thing for role in clause.roles if role.thing is not None]
                assert set(named) == event.things
                for role in clause.roles:
                    words = caption.words[role.start : role.end]
                    assert words
                    if role.name in ("ARG0", "ARG1") and role.thing is not None:
                        assert words[0] in ("a", "an", "the")
        assert Story.from_json(json.loads(json.dumps(clip.story.to_json()))) == clip.story


def test_spans_are_those_of_the_events_and_order_words_choose_among_them(clips: tuple[Clip, ...]) -> None:
    chosen = 0
    for clip in clips:
        for caption in clip.captions:
            told = [clip.story.events[clause.event] for clause in caption.clauses]
            times = {(event.start, event.end) for event in clip.story.events}
            if caption.kind == "then":
                first, last = min(told, key=lambda e: e.start), max(told, key=lambda e: e.end)
                assert caption.spans == ((first.start, last.end),)
                continue
            assert set(caption.spans) <= times
            if caption.kind in ("before", "after"):
                assert len(caption.spans) == 1
                main = next(e for e in told if (e.start, e.end) == caption.spans[0])
                chosen += sum(event.meaning == main.meaning for event in clip.story.events) > 1
    assert chosen, "somewhere only the word for the order tells which time is meant"


def test_distractors_have_the_same_words_and_are_false(clips: tuple[Clip, ...]) -> None:
    distracted = [caption for clip in clips for caption in clip.captions if caption.distractor]
    assert len(distracted) > 100
    for caption in distracted:
        assert caption.distractor is not None
        known = sorted(word for word in caption.words if word not in ("a", "an", "the"))
        other = caption.distractor.replace(",", " ,").split()
        assert sorted(word for word in other if word not in ("a", "an", "the")) == known
        assert caption.distractor != caption.text


def test_twins_begin_alike_and_their_captions_tell_them_apart(twins: tuple[Clip, ...]) -> None:
    orders = 0
    for one, two in zip(twins[::2], twins[1::2], strict=True):
        assert one.group == two.group
        assert (one.story.twin, two.story.twin) == (two.story.id, one.story.id)
        assert one.story.scene.things == two.story.scene.things
        assert one.described
        assert two.described
        for own, other in ((one, two), (two, one)):
            assert not any(is_true(caption, own.story, other.story) for caption in own.described)
            assert all(is_true(caption, own.story, own.story) for caption in own.captions)
        words = [
            sorted(w for c in clip.described for w in c.words if w not in ("a", "an", "the")) for clip in (one, two)
        ]
        assert words[0] == words[1]
        orders += {e.meaning for e in one.story.events} == {e.meaning for e in two.story.events}
    assert 5 < orders < 25


def test_frames_are_of_the_middles_of_pieces(clips: tuple[Clip, ...]) -> None:
    story = clips[0].story
    frames = draw_frames(story, 32, 4)
    assert frames.shape == (round(story.seconds * 4), 32, 32, 3)
    np.testing.assert_allclose(frame_times(1.0, 4), [0.125, 0.375, 0.625, 0.875])
    np.testing.assert_array_equal(draw_frames(story, 32, 2), draw_frames(story, 32, 2))


def test_the_data_set_has_captions_for_matching_and_sentences_with_spans() -> None:
    videos, moments = open_world_videos("test", pictures=50), open_world_moments("test", pictures=50)
    assert len(videos.ids) == len(videos.seconds) == len(moments.pictures.ids) == 5
    assert set(videos.texts) <= set(moments.texts)
    assert np.bincount(videos.image_of_text).max() <= 5
    assert set(moments.kinds) <= set(KINDS)
    lengths = np.array(moments.pictures.seconds)[moments.pictures.image_of_text]
    assert all(end < length for spans, length in zip(moments.spans, lengths, strict=True) for _, end in spans)
    with pytest.raises(SaccadeError, match="give pictures=2000"):
        open_world_videos("test", pictures=3)
