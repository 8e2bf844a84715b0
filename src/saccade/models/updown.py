"""Up-Down: Bottom-Up and Top-Down Attention for Image Captioning and Visual Question Answering (Anderson, He, Buehler,
Teney, Johnson, Gould, Zhang; CVPR 2018), its captioner.

A detector proposes the regions (bottom-up). One LSTM reads the last word and the mean region and attends (top-down), a
second one predicts the next word from what was attended to. Equation numbers are the paper's; `docs/systems/updown.md`
has them in full.

    x¹ = [h², v̄, W_e Π]        (2)     h¹ = LSTM₁(x¹, h¹)       (1)
    a_i = w · tanh(W_v v_i + W_h h¹)  (3)     α = softmax(a)  (4)     v̂ = Σ α_i v_i  (5)
    x² = [v̂, h¹]               (6)     h² = LSTM₂(x², h²)       p(y) = softmax(W_p h² + b_p)  (7)
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from saccade.batch import CaptionState, RegionBatch, StepOutput
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.captioner import RecurrentCaptioner
from saccade.models.base.model import register
from saccade.nn.attention import AdditiveAttention, attended
from saccade.nn.captioners import (
    PictureContext,
    RegionBatchNorm,
    RegionEmbedding,
    TopDown,
    TopDownMemory,
    open_forget_gates,
)
from saccade.nn.encode import dropout_layer


@dataclass(frozen=True)
class UpDownConfig:
    """The paper's form, which is also that of the authors' Caffe code: equations 1–7 and nothing else.

    The PyTorch code that most later papers use puts a ReLU layer before regions, picture and words, gives the attention
    a bias and has dropout: `embed_regions=true word_relu=true attention_bias=true dropout=0.5 forget_bias=0`, and
    `region_norm` for its use_bn. Importers set these; `attention_gain` is for recipes of short training.
    """

    region_dim: int = 2048
    word_dim: int = 1000  # E
    dim: int = 1000  # M, of both LSTMs
    attention_dim: int = 512  # H
    embed_regions: bool = False  # v = ReLU(W v), and the same for their mean with weights of its own
    word_relu: bool = False
    attention_bias: bool = False
    region_norm: RegionBatchNorm = "none"  # batch normalisation before, or before and after, that layer
    forget_bias: float = 1.0  # initial bias of the LSTMs' forget gates
    attention_gain: float = 1.0  # of h¹'s initial weights in LSTM₂; 1: as published
    dropout: float = 0.0  # of embedded regions, picture and words, and of h² before the words

    def __post_init__(self) -> None:
        if self.region_norm != "none" and not self.embed_regions:
            raise SaccadeError(f"region_norm={self.region_norm} goes with embed_regions=true: there is no layer else")


State = CaptionState[TopDownMemory, PictureContext]


@register(
    "updown",
    task="captioning",
    title="Bottom-Up and Top-Down Attention for Image Captioning and Visual Question Answering",
    venue="Anderson et al., CVPR 2018",
)
class UpDown(RecurrentCaptioner[TopDownMemory, PictureContext]):
    Config = UpDownConfig

    def __init__(self, config: UpDownConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        self.dropout = dropout_layer(config.dropout)
        self.word_relu = config.word_relu
        self.words = nn.Embedding(len(vocabulary), config.word_dim)  # W_e
        region_dim = config.dim if config.embed_regions else config.region_dim
        if config.embed_regions:
            self.regions = RegionEmbedding(config.region_dim, config.dim, config.region_norm, config.dropout)
            self.whole = nn.Linear(config.region_dim, config.dim)
        self.lstms = TopDown(config.word_dim, region_dim, region_dim, config.dim, config.attention_gain)
        self.look = AdditiveAttention(region_dim, config.dim, config.attention_dim, bias=config.attention_bias)
        self.out = nn.Linear(config.dim, len(vocabulary))  # W_p, b_p: eq. 7
        for lstm in (self.lstms.look_lstm, self.lstms.say_lstm):
            open_forget_gates(lstm, config.forget_bias)

    def start_from(self, images: RegionBatch, whole: Float[Tensor, "row region_dim"]) -> State:
        if self.config.embed_regions:
            regions = self.regions(images.features, images.mask)
            whole = self.dropout(self.whole(whole).relu())
        else:
            regions = images.features * images.mask[:, :, None]
        context = PictureContext(regions, self.look.keys(regions), images.mask, whole)  # v, W_v v, v̄
        return CaptionState(self.lstms.initial_memory(regions), context)

    def decode_step(
        self, word: Float[Tensor, "row word_dim"], state: State
    ) -> StepOutput[TopDownMemory, PictureContext]:
        memory, context = state.memory, state.context
        attention = self.lstms.attention_step(word, context.whole, memory)  # eq. 1–2
        weights = self.look(attention[0], context.keys, context.mask)  # eq. 3–4
        found = attended(weights, context.regions)  # eq. 5
        memory = self.lstms.language_step(found, attention, memory)  # eq. 6
        return StepOutput(self.dropout(memory.language_hidden), CaptionState(memory, context), weights)
