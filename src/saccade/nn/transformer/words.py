"""Words by a pre-trained transformer in place of a GRU: MiniLM: Deep Self-Attention Distillation for Task-Agnostic
Compression of Pre-Trained Transformers (Wang, Wei, Dong, Bao, Yang, Zhou; NeurIPS 2020), tuned for sentences.

    h₀ = norm(w_j + p_j),   h′ = norm(h + attention(h)),   h = norm(h′ + W₂ gelu(W₁ h′))     for each of six layers

It reads words where the original reads pieces of words: a word starts as the mean of its pieces, which for most words
of captions is one. So every state belongs to a word that can be shown, and the table holds the words of the captions
alone.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.batch import TextBatch
from saccade.core.errors import SaccadeError
from saccade.core.pretrained import find_pretrained
from saccade.core.weights import read_weights
from saccade.language import Vocabulary
from saccade.language.vectors import load_vectors
from saccade.language.vocabulary import SPECIAL
from saccade.nn.encode import at_least_float32, dropout_layer, unit
from saccade.nn.transformer.bert import load_layer, load_part
from saccade.nn.transformer.blocks import EPS, Layer, run_layers

WIDTH, LAYERS, HEADS, MLP_RATIO = 384, 6, 12, 4
MAX_WORDS = 512
PIECES_OF = dict(zip(SPECIAL, ("[PAD]", "[CLS]", "[SEP]", "[MASK]"), strict=True))


class TransformerWords(nn.Module):
    """e_j = W h_j + b of the last layer's states, of unit length by default; zero where a sentence has ended."""

    def __init__(self, vocabulary: int, dim: int, normalise: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.normalise = normalise
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Parameter(torch.zeros(MAX_WORDS, WIDTH))
        self.norm = nn.LayerNorm(WIDTH, EPS)
        self.dropout = dropout_layer(dropout)
        self.layers = nn.ModuleList(Layer(WIDTH, HEADS, MLP_RATIO * WIDTH, dropout) for _ in range(LAYERS))
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
        vectors = at_least_float32(self.fc(run_layers(self.layers, states, texts.mask)))
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
        load_part(self.norm, theirs, "embeddings.LayerNorm")
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            load_layer(layer, theirs, f"encoder.layer.{number}")
