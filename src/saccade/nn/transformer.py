"""Words by a pre-trained transformer in place of a GRU: MiniLM: Deep Self-Attention Distillation for Task-Agnostic
Compression of Pre-Trained Transformers (Wang, Wei, Dong, Bao, Yang, Zhou; NeurIPS 2020), tuned for sentences.

    h₀ = norm(w_j + p_j),   h′ = norm(h + attention(h)),   h = norm(h′ + W₂ gelu(W₁ h′))     for each of six layers

It reads words where the original reads pieces of words: a word starts as the mean of its pieces, which for most words
of captions is one. So every state belongs to a word that can be shown, and the table holds the words of the captions
alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import TextBatch
from saccade.core.errors import SaccadeError
from saccade.core.pretrained import find_pretrained
from saccade.core.weights import read_weights
from saccade.language import Vocabulary
from saccade.language.vectors import load_vectors
from saccade.language.vocabulary import SPECIAL
from saccade.nn.encode import at_least_float32, dropout_layer, unit

WIDTH, LAYERS, HEADS, MLP_RATIO, EPS = 384, 6, 12, 4, 1e-12
MAX_WORDS = 512
PIECES_OF = dict(zip(SPECIAL, ("[PAD]", "[CLS]", "[SEP]", "[MASK]"), strict=True))


class Layer(nn.Module):
    """Attention among the words of a sentence, then two layers for each; both are normalised after they are added."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, MLP_RATIO * WIDTH), nn.Linear(MLP_RATIO * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, EPS), nn.LayerNorm(WIDTH, EPS)
        self.dropout = dropout_layer(dropout)

    def forward(
        self, states: Float[Tensor, "text word dim"], mask: Bool[Tensor, "text 1 1 word"]
    ) -> Float[Tensor, "text word dim"]:
        queries, keys, values = self.qkv(states).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(queries, keys, values, mask)
        states = self.norm1(states + self.dropout(self.project(attended.transpose(1, 2).flatten(2))))
        found: Tensor = self.norm2(states + self.dropout(self.fc2(functional.gelu(self.fc1(states)))))
        return found


class TransformerWords(nn.Module):
    """e_j = W h_j + b of the last layer's states, of unit length by default; zero where a sentence has ended."""

    def __init__(self, vocabulary: int, dim: int, normalise: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.normalise = normalise
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Parameter(torch.zeros(MAX_WORDS, WIDTH))
        self.norm = nn.LayerNorm(WIDTH, EPS)
        self.dropout = dropout_layer(dropout)
        self.layers = nn.ModuleList(Layer(dropout) for _ in range(LAYERS))
        self.fc = nn.Linear(WIDTH, dim)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.02)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, texts: TextBatch) -> Float[Tensor, "text word dim"]:
        words = texts.tokens.shape[1]
        if words > MAX_WORDS:
            raise SaccadeError(f"a sentence of {words} words is too long: the model reads at most {MAX_WORDS}")
        states = self.dropout(self.norm(self.embed(texts.tokens) + self.positions[:words]))
        mask = texts.mask.clone()
        mask[:, 0] = True  # a sentence without words would attend to nothing
        for layer in self.layers:
            states = layer(states, mask[:, None, None])
        vectors = at_least_float32(self.fc(states))
        return (unit(vectors) if self.normalise else vectors) * texts.mask[:, :, None]

    @torch.no_grad()
    def load_minilm(self, vocabulary: Vocabulary) -> None:
        """Start from the weights that `saccade weights get minilm` fetches; only W and b stay as they are.

        Raises: SaccadeError if the weights are not here.
        """
        theirs = read_weights(find_pretrained("minilm")[0])
        words = [PIECES_OF.get(word, word) for word in vocabulary.words]
        found = load_vectors("minilm", words)
        have = set(found.words)
        known = [word in have for word in words]
        self.embed.weight[torch.tensor(known)] = torch.from_numpy(found.matrix)
        self.positions.copy_(
            theirs["embeddings.position_embeddings.weight"] + theirs["embeddings.token_type_embeddings.weight"][0]
        )
        _load(self.norm, theirs, "embeddings.LayerNorm")
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            place = f"encoder.layer.{number}"
            for kind in ("weight", "bias"):
                parts = [theirs[f"{place}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
                getattr(layer.qkv, kind).copy_(torch.cat(parts))
            _load(layer.project, theirs, f"{place}.attention.output.dense")
            _load(layer.norm1, theirs, f"{place}.attention.output.LayerNorm")
            _load(layer.fc1, theirs, f"{place}.intermediate.dense")
            _load(layer.fc2, theirs, f"{place}.output.dense")
            _load(layer.norm2, theirs, f"{place}.output.LayerNorm")


def _load(module: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    module.load_state_dict({kind: weights[f"{name}.{kind}"] for kind in ("weight", "bias")})
