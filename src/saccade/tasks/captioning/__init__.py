"""Captioning: say what is in a picture, word by word. Here: how captions are found, as options of commands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.decoding import DecodingConfig

DEFAULT_SAMPLES = 5


class Strategy(str, Enum):
    greedy = "greedy"
    beam = "beam"
    diverse = "diverse"
    sample = "sample"


class LengthPenalty(str, Enum):
    none = "none"
    wu = "wu"
    average = "average"


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of captioners: BLEU, METEOR, ROUGE-L, CIDEr and scene graphs of what they say of each picture, beside what people
    said, times 100 as in papers. --strategy, --num-beams, --max-length, --length-penalty, --no-repeat-ngram-size and
    --captions are for them; where none is given, captions are decoded as in the run's own evaluations.
    """

    strategy: Strategy | None = None
    num_beams: int | None = None
    max_length: int | None = None
    length_penalty: LengthPenalty | None = None
    no_repeat_ngram_size: int | None = None
    captions: Path | None = None

    def over(self, base: DecodingConfig) -> DecodingConfig:
        """`base` with these options."""
        return chosen_decoding(base, **{name: value for name, value in vars(self).items() if name != "captions"})


def chosen_decoding(base: DecodingConfig, **options: Any) -> DecodingConfig:
    """`base` with options of the command line by their names in DecodingConfig; None is one that was not given.

    The strategy follows from the others where it is not named.
    """
    given = {name: value for name, value in options.items() if value is not None}
    strategy, count = given.pop("strategy", None), given.pop("num_return_sequences", None)
    if strategy is None and (count is not None or {"top_k", "top_p"} & given.keys()):
        strategy = Strategy.sample
    elif strategy is None and {"num_beams", "length_penalty"} & given.keys():
        strategy = Strategy.beam
    strategy = strategy or Strategy(base.strategy)
    searching = strategy in (Strategy.beam, Strategy.diverse)
    for name in ("top_k", "top_p", "num_beams", "length_penalty"):
        samples = name in ("top_k", "top_p")
        if name in given and not (strategy is Strategy.sample if samples else searching):
            raise SaccadeError(
                f"--{name.replace('_', '-')} goes with --strategy {'sample' if samples else 'beam or diverse'}, "
                f"and these options mean --strategy {strategy.value}"
            )
    if strategy is Strategy.greedy and (count or 1) > 1:
        raise SaccadeError(
            f"--strategy greedy has one caption a picture: --num-return-sequences {count} goes with the other ways"
        )
    beams = given.get("num_beams", base.num_beams)
    if searching and (count or 1) > beams:
        raise SaccadeError(f"--num-return-sequences {count} of {beams} beams: give --num-beams {count} to have so many")
    if strategy is Strategy.beam and given.get("num_beams") == 1:
        strategy = Strategy.greedy
    if strategy is Strategy.sample:
        given["num_return_sequences"] = count or DEFAULT_SAMPLES
    if "length_penalty" in given:
        given["length_penalty"] = given["length_penalty"].value
    groups = beams if strategy is Strategy.diverse else 1  # of diverse ones each beam differs from all others
    return replace(base, strategy=strategy.value, num_beam_groups=groups, **given)


def describe_decoding(config: DecodingConfig) -> str:
    """In a few words, for a table's title."""
    if config.strategy == "greedy":
        return "greedy"
    if config.strategy == "sample":
        return "sampled"
    return f"{'diverse beams' if config.strategy == 'diverse' else 'beam search'} of {config.num_beams}"
