"""A small GPT: about 10 million parameters at the demo's size, with dropout, so that every step draws random numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from hinan.demo.settings import Plan
from hinan.demo.text import VOCABULARY


class Block(nn.Module):
    """Attention, then a feed-forward layer; both normalised before and added to their input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_attention, self.norm_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, time, width) to the same shape."""
        batch, time, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        x = x + self._drop(self.mix(seen.transpose(1, 2).reshape(batch, time, width)))
        return x + self._drop(self.down(F.gelu(self.up(self.norm_forward(x)))))

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.dropout, self.training)


class Gpt(nn.Module):
    """Predicts the next byte of a text."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, plan.width)
        self.places = nn.Embedding(plan.context, plan.width)
        self.blocks = nn.ModuleList(Block(plan.width, plan.heads, plan.dropout) for _ in range(plan.layers))
        self.norm = nn.LayerNorm(plan.width)
        self.head = nn.Linear(plan.width, VOCABULARY)
        self.apply(_start)

    def forward(self, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy of the following bytes; both arguments are (batch, time), int64."""
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), following.flatten())


def _start(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
