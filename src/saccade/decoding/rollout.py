"""Sentences said straight on: the likeliest word each time (greedy), or one drawn at random (sampling)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import END, PAD, START, CaptionState, PictureBatch, RegionBatch
from saccade.decoding.config import DecodingConfig
from saccade.decoding.constraints import FORBIDDEN, Constraints
from saccade.decoding.output import DecodedCaptions
from saccade.models.base.captioner import Captioner

Choose = Callable[[Tensor], tuple[Tensor, Tensor]]  # log-probabilities → words, log-probabilities they come from


def begin(model: Captioner, images: RegionBatch | PictureBatch | CaptionState) -> CaptionState:
    """Pictures are looked at; a captioner that has already looked goes on from there."""
    return images if isinstance(images, CaptionState) else model.start(model.extract(images))


def worth_asking(like: Tensor, step: int) -> bool:
    """Whether to look now if all is said. A GPU is asked at every fourth step only: to ask is to wait for it."""
    return not like.is_cuda or step % 4 == 3


def greedy(
    model: Captioner,
    images: RegionBatch | PictureBatch | CaptionState,
    config: DecodingConfig | None = None,
    *,
    distributions: bool = False,
) -> DecodedCaptions:
    """One caption a picture: always the likeliest word."""

    def likeliest(allowed: Float[Tensor, "row word"]) -> tuple[Tensor, Tensor]:
        return allowed.argmax(dim=1), allowed

    with torch.no_grad():
        return _roll_out(model, begin(model, images), config or DecodingConfig(), likeliest, distributions)


def sample(
    model: Captioner,
    images: RegionBatch | PictureBatch | CaptionState,
    config: DecodingConfig | None = None,
    *,
    generator: torch.Generator | None = None,
    distributions: bool = False,
) -> DecodedCaptions:
    """`config.samples` captions a picture, each word drawn from those that `top_k` and `nucleus` leave.

    The log-probabilities are those of the distribution drawn from, and keep their gradient unless it is switched off.
    """
    config = config or DecodingConfig()

    def drawn(allowed: Float[Tensor, "row word"]) -> tuple[Tensor, Tensor]:
        policy = narrow(allowed, config.top_k, config.top_p)
        return torch.multinomial(policy.detach().exp(), 1, generator=generator)[:, 0], policy

    state = begin(model, images).repeat(config.num_return_sequences)
    return _roll_out(model, state, config, drawn, distributions, config.num_return_sequences)


def narrow(allowed: Float[Tensor, "row word"], top_k: int, nucleus: float) -> Float[Tensor, "row word"]:
    """Only the likeliest words: `top_k` of them, and of those the fewest that have a share of `nucleus`."""
    if 0 < top_k < allowed.shape[1]:
        kept = allowed.detach().topk(top_k, dim=1).indices
        allowed = allowed.masked_fill(torch.ones_like(allowed, dtype=torch.bool).scatter(1, kept, False), FORBIDDEN)
    if nucleus < 1:
        likely, order = allowed.detach().softmax(dim=1).sort(dim=1, descending=True)
        before = likely.cumsum(dim=1) - likely  # the share of likelier words: 0 for the first, which always stays
        allowed = allowed.masked_fill((before >= nucleus).scatter(1, order, before >= nucleus), FORBIDDEN)
    return allowed.log_softmax(dim=1)


def _roll_out(
    model: Captioner,
    state: CaptionState,
    config: DecodingConfig,
    choose: Choose,
    distributions: bool,
    per_image: int = 1,
) -> DecodedCaptions:
    """Until every sentence has ended; one that has ended says padding."""
    device = next(model.parameters()).device
    constraints = Constraints(config, model.vocabulary, device)
    words: Int[Tensor, " row"] = torch.full((len(state),), START, device=device)
    over = torch.zeros_like(words, dtype=torch.bool)
    said = words.new_zeros(len(state), 0)
    chances, weights, sentinels, everything = [], [], [], []
    for step in range(config.max_length):
        log_probabilities, output = model.predict_next(words, state)
        state = output.state
        words, policy = choose(constraints(log_probabilities, said))
        chances.append(policy.gather(1, words[:, None])[:, 0].masked_fill(over, 0))
        weights.append(output.weights.detach().masked_fill(over[:, None], 0))
        if output.sentinel is not None:
            sentinels.append(output.sentinel.detach().masked_fill(over, 0))
        if distributions:
            everything.append(policy.masked_fill(over[:, None], 0))
        words = words.masked_fill(over, PAD)
        said = torch.cat([said, words[:, None]], dim=1)
        if not config.continue_after_end:
            over = over | (words == END)
            if worth_asking(over, step) and bool(over.all()):
                break
    log_probabilities = torch.stack(chances, dim=1)
    return DecodedCaptions(
        said,
        log_probabilities,
        log_probabilities.sum(dim=1),
        torch.stack(weights, dim=1),
        torch.stack(sentinels, dim=1) if sentinels else None,
        torch.stack(everything, dim=1) if distributions else None,
        per_image,
    ).trimmed()
