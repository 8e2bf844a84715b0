"""How captions are found, as options: the same for `saccade caption` and `saccade eval`; and the latter's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.decoding import DecodingConfig

DEFAULT_SAMPLES = 5
MAX_COUNT = 1000  # of beams, samples, words: more would fill the memory before anything is said


class Strategy(str, Enum):
    greedy = "greedy"
    beam = "beam"
    diverse = "diverse"
    sample = "sample"


class LengthPenalty(str, Enum):
    none = "none"
    wu = "wu"
    average = "average"


StrategyOption = Annotated[
    Strategy | None,
    typer.Option(
        "--strategy",
        help="greedy takes the likeliest word each time; beam follows several sentences at once; diverse makes them "
        "differ; sample draws words by their probability.",
        show_default=False,
    ),
]
NumBeamsOption = Annotated[
    int | None,
    typer.Option(
        "--num-beams", "-b", min=1, max=MAX_COUNT, help="Sentences followed at once; 1 is greedy.", show_default=False
    ),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option("--max-length", min=1, max=MAX_COUNT, help="Words of a caption at most.", show_default=False),
]
PenaltyOption = Annotated[
    LengthPenalty | None,
    typer.Option(
        "--length-penalty",
        help="Long sentences are less likely than short ones; average and wu (Google's) make up for it.",
        show_default=False,
    ),
]
NoRepeatNgramSizeOption = Annotated[
    int | None,
    typer.Option(
        "--no-repeat-ngram-size", metavar="N", min=0, help="3: no three words in a row are said twice; 0: they may be."
    ),
]


@dataclass(frozen=True)
class EvalOptions:
    """Of captioners: BLEU, METEOR, ROUGE-L, CIDEr and scene graphs of what they say of each picture, beside what people
    said, times 100 as in papers. --strategy, --num-beams, --max-length, --length-penalty, --no-repeat-ngram-size and
    --captions are for them; where none is given, captions are decoded as in the run's own evaluations.
    """

    strategy: StrategyOption = None
    num_beams: NumBeamsOption = None
    max_length: MaxLengthOption = None
    length_penalty: PenaltyOption = None
    no_repeat_ngram_size: NoRepeatNgramSizeOption = None
    captions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep what a captioner said, in COCO's results format; of several models each gets a file of its own.",
        ),
    ] = None

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
