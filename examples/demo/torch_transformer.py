"""The demo's transformer as a PyTorch module, for machines that have PyTorch.

The same shape as tiny_transformer.py; the weights are drawn by PyTorch, so the tokens differ.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from tiny_transformer import CONTEXT_TOKENS_MAX, HEADS, LAYERS, VOCABULARY, WIDTH
from torch import Tensor, nn
from torch.nn import functional

HEAD_WIDTH = WIDTH // HEADS


class Layer(nn.Module):
    """Attention over the cached tokens, then a feed-forward net."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)])
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.mix = nn.Linear(WIDTH, WIDTH, bias=False)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        q, k, v = (part.view(HEADS, 1, HEAD_WIDTH) for part in self.qkv(self.norms[0](x)).chunk(3))
        cache.append((k, v))
        keys, values = (torch.cat(parts, dim=1) for parts in zip(*cache, strict=True))
        attended = functional.scaled_dot_product_attention(q, keys, values)
        x = x + self.mix(attended.reshape(WIDTH))
        return x + self.narrow(functional.relu(self.widen(self.norms[1](x))))


class TorchTransformer(nn.Module):
    """Decoder-only and greedy over random weights drawn once from ``seed``."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__()
        self.name = name
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT_TOKENS_MAX, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.eval()

    def generate(self, prompt: bytes, tokens_max: int) -> Iterator[int]:
        """Yield up to ``tokens_max`` tokens after ``prompt`` (at least one byte)."""
        caches: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(LAYERS)]
        token = 0
        for position, token_in in enumerate(prompt):
            token = self.step(token_in, position, caches)
        room = CONTEXT_TOKENS_MAX - len(prompt)
        for offset in range(min(tokens_max, room)):
            yield token
            token = self.step(token, len(prompt) + offset, caches)

    @torch.inference_mode()
    def step(self, token: int, position: int, caches: list[list[tuple[Tensor, Tensor]]]) -> int:
        """The token after ``token``."""
        return int(self(torch.tensor(token), torch.tensor(position), caches))

    def forward(
        self, token: Tensor, position: Tensor, caches: list[list[tuple[Tensor, Tensor]]]
    ) -> Tensor:
        x = self.embedding(token) + self.positions(position)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache)
        return self.output(x).argmax()
