"""A real, very small transformer with random weights: two layers, byte vocabulary, a KV cache.

It computes; it does not make sense.  NumPy only, so that it runs wherever Python does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

VOCABULARY = 256
WIDTH, HEADS, LAYERS = 64, 4, 2
HEAD_WIDTH = WIDTH // HEADS
CONTEXT_TOKENS_MAX = 512


@dataclass
class _Cache:
    """Keys and values of the tokens so far, for one layer: (tokens, heads, head width)."""

    keys: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)


def _normalise(x: Array) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5)


class TinyTransformer:
    """Decoder-only, pre-norm, greedy over random weights drawn once from ``seed``."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        draw = np.random.default_rng(seed)

        def weights(*shape: int) -> Array:
            return (draw.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

        self._embedding = weights(VOCABULARY, WIDTH) * np.float32(8)
        self._positions = weights(CONTEXT_TOKENS_MAX, WIDTH) * np.float32(8)
        self._layers = [
            (weights(WIDTH, 3 * WIDTH), weights(WIDTH, WIDTH), weights(WIDTH, 4 * WIDTH),
             weights(4 * WIDTH, WIDTH))
            for _ in range(LAYERS)
        ]  # fmt: skip
        self._output = weights(WIDTH, VOCABULARY)

    def generate(self, prompt: bytes, tokens_max: int) -> Iterator[int]:
        """Yield up to ``tokens_max`` tokens after ``prompt`` (at least one byte)."""
        caches = [_Cache() for _ in range(LAYERS)]
        token = 0
        for position, token_in in enumerate(prompt):
            token = self._step(token_in, position, caches)
        room = CONTEXT_TOKENS_MAX - len(prompt)
        for offset in range(min(tokens_max, room)):
            yield token
            token = self._step(token, len(prompt) + offset, caches)

    def _step(self, token: int, position: int, caches: list[_Cache]) -> int:
        x: Array = self._embedding[token] + self._positions[position]
        for (qkv, mix, widen, narrow), cache in zip(self._layers, caches, strict=True):
            q, k, v = np.split(_normalise(x) @ qkv, 3)
            cache.keys.append(k.reshape(HEADS, HEAD_WIDTH))
            cache.values.append(v.reshape(HEADS, HEAD_WIDTH))
            keys, values = np.stack(cache.keys), np.stack(cache.values)
            scores = np.einsum("hd,thd->ht", q.reshape(HEADS, HEAD_WIDTH), keys)
            scores = np.exp((scores - scores.max(axis=1, keepdims=True)) / np.sqrt(HEAD_WIDTH))
            scores /= scores.sum(axis=1, keepdims=True)
            x = x + np.einsum("ht,thd->hd", scores, values).reshape(WIDTH) @ mix
            x = x + np.maximum(_normalise(x) @ widen, 0) @ narrow
        return int(np.argmax(_normalise(x) @ self._output))
