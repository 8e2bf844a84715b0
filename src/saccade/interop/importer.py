"""Importers: an official file → a model of ours, by a table of settings and a table of weights.

An `Importer` says all that is a system's own: how options, words and weights lie in its files (`reads`), which of our
settings each option is (`config`), and which of our weights each weight is (`weights`). Tables of weights are read in
both directions:

    "core.att_lstm.*": to("lstms.attention.*")                 the same weights under another name
    "ctx2att.bias": add_to("attention.region.bias")            one of several that are added up here
    "decoder_W": to("lstm.weight_ih", transposed, columns=(None, 300))      a part of a matrix of ours, turned
    "rela_ctx2att.weight": (to("a.weight"), to("b.weight"))    used in two places here
    "alpha_net.bias": ignored("a softmax is blind to it")

`WeightMap.load` puts official weights into a model. `WeightMap.gradients` brings the gradients of our weights back as
those of the official ones: the table is a differentiable function of their weights, so this is its vector–Jacobian
product and needs no second table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.core.weights import build_within, check_values
from saccade.interop.checkpoint import Options
from saccade.interop.words import OfficialWords
from saccade.language import Vocabulary
from saccade.models import Model

M = TypeVar("M", bound=Model)
BATCHES = "num_batches_tracked"  # which old files do not have


@dataclass(frozen=True)
class Source:
    """What an official file holds, with what lies beside it."""

    path: Path
    title: str
    options: Options
    weights: dict[str, Tensor]
    vocabulary: Vocabulary
    words: OfficialWords | None = None  # None: official ids are ours


Reader = Callable[[Path, Vocabulary | None, str], Source]  # of a file, the words that came with it, and the title
Term = str | Callable[[Source], Any]  # an option by its name, or a function of all
Step = Callable[[Tensor], Tensor]  # what is done to an official weight on its way in


def const(value: Any) -> Term:
    return lambda source: value


def choice(option: str, table: Mapping[Any, Any]) -> Term:
    """What the table has for the option. Raises: SaccadeError if it has nothing."""
    return lambda source: source.options(option, table)


def optional(option: str, default: Any) -> Term:
    return lambda source: type(default)(source.options.get(option, default))


def unless(option: str) -> Term:
    """Our switch is on where theirs is off, or not there."""
    return lambda source: not source.options.get(option, False)


@dataclass(frozen=True)
class WeightRow:
    """Where an official weight goes. In names, `*` stands for the same text on both sides."""

    ours: str
    steps: tuple[Step, ...] = ()
    columns: tuple[int | None, int | None] = (None, None)  # of our matrix, where it is a part: from, to
    words: Literal["input", "output"] | None = None  # it has a row for every word, as input or as output of the model
    optional: bool = False  # files have it even where the model, by its config, has no use for it
    shared: bool = False  # others are added to the same place
    reason: str = ""  # why it goes nowhere


Table = Mapping[str, WeightRow | tuple[WeightRow, ...]]


def to(ours: str, *steps: Step, **how: Any) -> WeightRow:
    """A place that is this weight's alone; `how` are fields of `WeightRow`."""
    return WeightRow(ours, steps, **how)


def add_to(ours: str, *steps: Step) -> WeightRow:
    """A place that holds a sum of several."""
    return WeightRow(ours, steps, shared=True)


def ignored(reason: str) -> WeightRow:
    """It may be in a file or not, and goes nowhere."""
    return WeightRow("", reason=reason)


def transposed(value: Tensor) -> Tensor:
    return value.T


def scaled(factor: float) -> Step:
    return lambda value: value * factor


def rows(start: int | None, stop: int | None) -> Step:
    """A part of an official matrix that holds several of ours."""
    return lambda value: value[start:stop]


def blocks(*order: int, axis: int = 0) -> Step:
    """Equal blocks in another order, such as the gates of an LSTM: which of theirs is our first, second, …"""
    return lambda value: torch.cat([value.chunk(len(order), dim=axis)[block] for block in order], dim=axis)


def raised(amount: float, block: int, of: int) -> Step:
    """A constant that the official code adds while running (TensorFlow's forget bias) to one of `of` blocks."""

    def step(value: Tensor) -> Tensor:
        added = torch.zeros_like(value)
        added.chunk(of)[block].fill_(amount)
        return value + added

    return step


class WeightMap:
    """A table applied to a model: for each official name, its rows with our names written out.

    Rows are written out from our side, so the map knows what a file must hold. A row whose place the model does not
    have (another config) needs nothing. `zeros` are parameters of ours that have no counterpart and are zero.
    """

    def __init__(self, table: Table, model: nn.Module, words: OfficialWords | None, zeros: Sequence[str] = ()) -> None:
        self.model, self.words = model, words
        self.known = {key: row if isinstance(row, tuple) else (row,) for key, row in table.items()}
        self.places = model.state_dict()
        self.rows: dict[str, list[WeightRow]] = {}
        taken: dict[str, WeightRow] = {}
        for key, row in ((key, row) for key, given in self.known.items() for row in given if row.ours):
            for ours in self.places:
                if (found := pattern(row.ours).fullmatch(ours)) is None:
                    continue
                other = taken.setdefault(ours, row)
                if other is not row and not (row.shared and other.shared) and row.columns == other.columns:
                    raise ValueError(f"two rows of the table write {ours}: add_to is the word where both belong")
                texts = iter(found.groups())
                theirs = re.sub(r"\*", lambda _, texts=texts: next(texts), key)  # type: ignore[misc]
                self.rows.setdefault(theirs, []).append(replace(row, ours=ours))
        parameters = {name for name, _ in model.named_parameters()}
        if lost := sorted(parameters - taken.keys() - set(zeros)):
            raise ValueError(f"no row of the table writes {lost[0]}")
        self.zeros = {name: torch.zeros_like(self.places[name]) for name in zeros if name in self.places}

    def load(self, weights: Mapping[str, Tensor], path: Path | str, title: str, strict: bool = True) -> None:
        """Put official weights into the model.

        Raises: SaccadeError if one is missing, unknown (unless not `strict`) or of another shape.
        """
        for name in self.rows:
            if name not in weights and not name.endswith(BATCHES):
                raise SaccadeError(
                    f"{path} is no {title} checkpoint: it has no {name}, so its weights do not fit the options"
                )
        unused = [key for key, given in self.known.items() if all(row.reason or row.optional for row in given)]
        for name in weights if strict else ():
            if name not in self.rows and not any(pattern(key).fullmatch(name) for key in unused):
                raise SaccadeError(f"{path}: the weights do not fit the options: {name} is not known")
        ours = self._ours(weights, path)
        check_values(ours, self.places, path)
        self.model.load_state_dict(self.places | self.zeros | ours)

    def gradients(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """After backward(): the gradient of each official weight, in its own shape; zero where nothing depends on it.

        Ours hold the official gradients' sum over all places, by the chain rule.
        """
        theirs = {
            name: weights[name].detach().double().requires_grad_()
            for name in self.rows
            if name in weights and weights[name].is_floating_point()
        }
        with torch.enable_grad():
            ours = self._ours(theirs, "")
        given = {name: p.grad.double() for name, p in self.model.named_parameters() if p.grad is not None}
        given = {name: gradient for name, gradient in given.items() if name in ours}
        torch.autograd.backward([ours[name] for name in given], list(given.values()))
        none = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
        return none | {name: weight.grad for name, weight in theirs.items() if weight.grad is not None}

    def _ours(self, weights: Mapping[str, Tensor], path: Path | str) -> dict[str, Tensor]:
        """Our weights as a function of theirs."""
        ours: dict[str, Tensor] = {}
        for name, row in [(name, row) for name, given in self.rows.items() if name in weights for row in given]:
            place, given = self.places[row.ours], weights[name]
            value = given.to(torch.promote_types(given.dtype, place.dtype))
            into = ours.setdefault(row.ours, value.new_zeros(place.shape))
            part = into[:, slice(*row.columns)] if row.columns != (None, None) else into
            try:
                for step in row.steps:
                    value = step(value)
                if row.words is not None:
                    assert self.words is not None
                    value = self.words.input_rows(value) if row.words == "input" else self.words.output_rows(value)
                # axes of one are no difference: a convolution of width one is a linear map
                if [size for size in value.shape if size != 1] != [size for size in part.shape if size != 1]:
                    raise IndexError("shapes differ")
            except (RuntimeError, IndexError) as error:
                raise SaccadeError(
                    f"{path}: the weights do not fit the options: {name} of shape {tuple(given.shape)} does not fit "
                    f"where {tuple(place.shape)} is expected"
                ) from error
            part += value.reshape(part.shape)
        return ours


def pattern(name: str) -> re.Pattern[str]:
    """`*` is any text; of several, all but the last stand for one part of a dotted name."""
    parts = [re.escape(part) for part in name.split("*")]
    return re.compile("".join([*(f"{part}([^.]+)" for part in parts[:-2]), "(.+)".join(parts[-2:])]))


@dataclass(frozen=True)
class Imported(Generic[M]):
    """A model, and the file that it was made from."""

    model: M
    source: Source
    importer: Importer[M]
    weight_map: WeightMap

    @property
    def words(self) -> OfficialWords:
        """Of a file whose ids are not ours."""
        assert self.source.words is not None
        return self.source.words

    def gradients(self) -> dict[str, Tensor]:
        """After backward(): the gradients of the official weights, by their official names."""
        return self.weight_map.gradients(self.source.weights)

    def variant(self, **settings: Any) -> M:
        """The same weights under other settings; those that have no place there are left out."""
        config = replace(self.model.config, **settings)
        dtype = next(self.model.parameters()).dtype
        return self.importer.build(config, self.source, dtype, strict=False).model


@dataclass(frozen=True)
class Importer(Generic[M]):
    system: str  # in `saccade import SYSTEM`
    title: str  # in error messages
    model: type[M]
    reads: Reader
    config: Mapping[str, Term]
    weights: Table | Callable[[Any], Table]  # for a config
    brings_words: bool = False  # they lie in or beside the file
    zeros: tuple[str, ...] = ()  # our parameters that have no counterpart
    check: Callable[[Source], None] = lambda source: None  # Raises: SaccadeError for options that have no form here
    other_files: Mapping[str, Importer[M]] = field(default_factory=dict)  # by suffix

    def __call__(self, path: Path | str, vocabulary: Vocabulary | None = None) -> M:
        """The model in an official file. Raises: SaccadeError if it is damaged, of another kind or not whole."""
        return self.read(path, vocabulary).model

    def read(
        self,
        path: Path | str,
        vocabulary: Vocabulary | None = None,
        more: Mapping[str, Tensor] | None = None,
        words: OfficialWords | None = None,
        dtype: torch.dtype = torch.float32,
        **settings: Any,
    ) -> Imported[M]:
        """The model with its source.

        `more` are weights from elsewhere; `words` and `settings` take the place of the file's own.
        """
        path = Path(path)
        if path.suffix in self.other_files:
            return self.other_files[path.suffix].read(path, vocabulary, more, words, dtype, **settings)
        source = self.reads(path, vocabulary, self.title)
        source.weights.update(more or {})
        if words is not None:
            source = replace(source, words=words, vocabulary=words.vocabulary)
        self.check(source)
        config = self.model.Config(**{**{name: self._setting(name, source) for name in self.config}, **settings})
        return self.build(config, source, dtype)

    def build(self, config: Any, source: Source, dtype: torch.dtype, strict: bool = True) -> Imported[M]:
        held = [weight.shape for weight in source.weights.values()]
        model = build_within(lambda: self.model(config, source.vocabulary), held, source.path).to(dtype)
        table = self.weights(config) if callable(self.weights) else self.weights
        weight_map = WeightMap(table, model, source.words, self.zeros)
        weight_map.load(source.weights, source.path, self.title, strict)
        return Imported(model.eval(), source, self, weight_map)

    def _setting(self, name: str, source: Source) -> Any:
        """Options are of the type of our setting: 0 and 1 are switches there."""
        term = self.config[name]
        if callable(term):
            return term(source)
        return type(getattr(self.model.Config, name))(source.options(term))
