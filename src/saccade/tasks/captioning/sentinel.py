"""When does a captioner look? β, the share of its attention that a visual sentinel takes, by what a word is."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from saccade.data.records import CaptionedImages
from saccade.language import Parse, shared_parser
from saccade.language.caption_words import word_table
from saccade.models import Captioner
from saccade.tasks.pairs import cut

FUNCTION_TAGS = frozenset({"DET", "AUX", "CCONJ", "SCONJ", "PRON", "PART"})
FUNCTION_WORDS = frozenset({"of"})  # other prepositions say where things stand, and that is seen
PLACES = word_table(  # nouns, but none of a thing
    "left right side top bottom front back background foreground middle center centre distance way"
)


@torch.no_grad()
def sentinel_shares(
    model: Captioner, data: CaptionedImages, longest: int, batch_size: int = 64
) -> Float[np.ndarray, "2 image"] | None:
    """The mean β of each picture on function words and on nouns of things; None of a model without a sentinel.

    The captions are those that people wrote, so that models that speak differently are asked about the same words. A
    picture whose captions have no such word has no value (nan).
    """
    device = next(model.parameters()).device
    sums, counts = np.zeros((2, len(data.images))), np.zeros((2, len(data.images)))
    for first in range(0, len(data.images), batch_size):
        images = range(first, min(first + batch_size, len(data.images)))
        places, _, owner = data.pairs(images, "pictures")
        if not places:
            continue
        texts = [data.texts[place] for place in places]
        read = cut(model.read(texts), longest)
        state = model.start(model.extract(data.images.batch(list(images)).to(device))).select(owner.to(device))
        shares = model.teacher_force(state, read.tokens[:, :-1].to(device)).sentinel
        if shares is None:
            return None
        beta, words = shares.float().cpu().numpy(), (read.lengths - 2).tolist()  # without <start> and <end>
        for row, parse in enumerate(shared_parser().parse(texts)):
            image = first + int(owner[row])
            for group, chosen in enumerate((function_words(parse), things(parse))):
                within = [place for place in chosen if place < words[row]]
                sums[group, image] += beta[row, within].sum()
                counts[group, image] += len(within)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def function_words(parse: Parse) -> list[int]:
    """Where words stand that follow from those around them: the, is, and, of."""
    pairs = enumerate(zip(parse.tokens, parse.tags, strict=True))
    return [place for place, (word, tag) in pairs if tag in FUNCTION_TAGS or word in FUNCTION_WORDS]


def things(parse: Parse) -> list[int]:
    """Where the nouns stand that name something to be seen."""
    return [thing.place for thing in parse.objects if parse.tokens[thing.place] not in PLACES]
