"""Contact sheets of videos: every clip a film strip, and under it sentences at the times in which they happen."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw

from saccade.world.render import empty_place, render
from saccade.world.sheet import CARD, FAINT, INK, MARGIN, PAPER, SCALE, TONES, font
from saccade.world.videos.films import Clip

FRAME, FRAMES, GAP = 112, 9, 22  # pixels of a frame's side, frames of a strip
LINE = 27  # for a bar and the sentence under it
SENTENCES = 5  # of a clip, at most


def film_sheet(clips: Sequence[Clip], title: str) -> Image.Image:
    """One clip a card."""
    wide = FRAME * FRAMES
    tall = [FRAME + 16 + LINE * len(_shown(clip)) + GAP for clip in clips]
    head = MARGIN + 62
    size = wide + 2 * GAP + 18, head + sum(tall) + GAP * len(clips) + MARGIN // 2
    sheet = Image.new("RGB", (size[0] * SCALE, size[1] * SCALE), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((GAP * SCALE, MARGIN * SCALE), title, fill=INK, font=font(19, bold=True))
    note = "a bar is the time in which its sentence happens; the scale is in seconds"
    pen.text((GAP * SCALE, (MARGIN + 27) * SCALE), note, fill=FAINT, font=font(12))
    top = head
    for clip, height in zip(clips, tall, strict=True):
        card = tuple(SCALE * at for at in (GAP - 9, top - 9, size[0] - GAP + 9, top + height))
        pen.rounded_rectangle(card, 10 * SCALE, fill=CARD, outline="#e4dfd3", width=SCALE)
        _draw_strip(sheet, pen, clip, GAP, top)
        _draw_sentences(pen, clip, GAP, top + FRAME + 20, wide)
        top += height + GAP
    return sheet.resize(size, Image.Resampling.LANCZOS)


def _shown(clip: Clip) -> list[tuple[str, tuple[tuple[float, float], ...]]]:
    """Sentences on single events first, then those on several, as many as there is room for."""
    ordered = sorted(clip.captions, key=lambda caption: (caption.kind != "event", caption.spans))
    return [(caption.text, caption.spans) for caption in ordered[:SENTENCES]]


def _draw_strip(sheet: Image.Image, pen: ImageDraw.ImageDraw, clip: Clip, left: int, top: int) -> None:
    story, side = clip.story, FRAME * SCALE
    ground = empty_place(story.scene, side)
    for n in range(FRAMES):
        time = (n + 0.5) / FRAMES * story.seconds
        frame = Image.fromarray(render(story.at(time), side, ground).image)
        sheet.paste(frame, ((left + n * FRAME) * SCALE, top * SCALE))
        pen.line(
            [((left + n * FRAME) * SCALE, top * SCALE), ((left + n * FRAME) * SCALE, top * SCALE + side)], "#ffffff", 2
        )
    for second in range(int(story.seconds) + 1):
        x = (left + second / story.seconds * FRAME * FRAMES) * SCALE
        pen.line([(x, (top + FRAME) * SCALE), (x, (top + FRAME + 4) * SCALE)], FAINT, SCALE)
        pen.text((x + 3 * SCALE, (top + FRAME + 2) * SCALE), str(second), fill=FAINT, font=font(9))


def _draw_sentences(pen: ImageDraw.ImageDraw, clip: Clip, left: int, top: int, wide: int) -> None:
    for n, (text, spans) in enumerate(_shown(clip)):
        tone, y = TONES[n % len(TONES)], top + n * LINE
        ends = [tuple((left + time / clip.story.seconds * wide) * SCALE for time in span) for span in spans]
        for x1, x2 in ends:
            pen.rounded_rectangle((x1, y * SCALE, x2, (y + 6) * SCALE), 3 * SCALE, fill=tone)
        length = pen.textlength(text, font=font(12))
        x = min(ends[0][0], (left + wide) * SCALE - length)
        pen.text((max(x, left * SCALE), (y + 8) * SCALE), text, fill=tone, font=font(12))
