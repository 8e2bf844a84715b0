"""What goes over the wire, as FastAPI shows it in the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """What was wrong, in a sentence."""

    error: str


class WordFound(BaseModel):
    word: str
    contribution: float
    region: int = Field(description="the region that the word found best; -1: none")
    known: bool


class HitFound(BaseModel):
    id: str
    name: str
    score: float
    probability: float | None
    words: list[WordFound]
    metadata: dict[str, Any]


class SearchAnswer(BaseModel):
    index: str
    model: str
    total: int = Field(description="pictures that were looked at")
    fits: bool = Field(description="whether anything probably fits")
    exact: bool = Field(description="whether the model scored every picture")
    unknown: list[str] = Field(description="words that the model does not know")
    seconds: dict[str, float] = Field(description="by stage")
    hits: list[HitFound]


class WordShown(BaseModel):
    text: str
    score: float | None
    strength: float | None
    known: bool
    content: bool
    colour: int | None
    heat: str | None = Field(description="a small PNG, as a data: address, to lay over the picture")


class PlaceShown(BaseModel):
    box: list[float]
    words: list[int]
    text: str
    colour: int


class ExplanationShown(BaseModel):
    """Which words go with which part of a picture."""

    score: float
    probability: float | None
    fits: bool
    generated: bool
    width: int
    height: int
    more: int = Field(description="words that were left out")
    boxes: list[list[float]]
    weights: list[list[float]] = Field(description="[word][region]")
    words: list[WordShown]
    places: list[PlaceShown]


class ExplainAnswer(ExplanationShown):
    picture: str | None = Field(description="frames of a video, which are the regions, as a data: address")
    index: str
    id: str
    text: str


class RegionsAnswer(BaseModel):
    index: str
    id: str
    boxes: list[list[float]]
    labels: list[str] | None = Field(description="where the model's extractor names things")


class LineShown(BaseModel):
    text: str
    score: float | None
    probability: float | None
    boxes: list[list[float]]
    span: list[float] | None = Field(description="seconds")
    details: list[str]


class TaskAnswer(BaseModel):
    model: str
    lines: list[LineShown]
    explanation: ExplanationShown | None
    picture: str | None = Field(description="what the model saw, as a data: address")
    seconds: float | None = Field(description="length of the video")
    curve: list[float]


class TaskOffered(BaseModel):
    verb: str
    does: str
    medium: str
    medium_optional: bool
    text: str
    text_optional: bool
    example: str
    models: list[str]


class IndexOffered(BaseModel):
    name: str
    model: str
    pictures: int
    line: float | None = Field(description="the score at which a picture fits as likely as not, if calibrated")
    columns: dict[str, str] = Field(description="text, number, time or list: what `where` may name")
    recall: dict[str, float] | None = Field(description="what `saccade index eval INDEX` measured: top, recall")


class Offered(BaseModel):
    version: str
    indices: list[IndexOffered]
    tasks: list[TaskOffered]
    limits: dict[str, float]


class FacetAnswer(BaseModel):
    index: str
    columns: dict[str, dict[str, int]]


class CopiesAsked(BaseModel):
    index: str = ""
    ids: list[str] = Field(max_length=500)


class CopiesAnswer(BaseModel):
    groups: list[list[str]]
    by: str


class LoginAsked(BaseModel):
    key: str = Field(max_length=1000)


class Health(BaseModel):
    status: str
    indices: int
    models: int
