"""The state that is measured: a decoder with GPT-2's proportions and AdamW, 592 tensors, at 1.5 GB exactly GPT-2 small."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

LAYERS = 12
TENSORS = (LAYERS * 12 + 4) * 4
"""Parameters, both moments and the step count of each."""


class Block(nn.Module):
    """One layer: attention and a two-layer perceptron, 12 tensors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mix(self.before(x)).chunk(3, dim=-1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        deeper: torch.Tensor = self.down(F.gelu(self.up(self.between(x))))
        return x + deeper


class Decoder(nn.Module):
    """Predicts the next token; input and output share one matrix."""

    def __init__(self, width: int, tokens: int, context: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.end = nn.LayerNorm(width)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.tokens(text) + self.places.weight[: text.shape[-1]]
        for block in self.blocks:
            x = block(x)
        logits = self.end(x) @ self.tokens.weight.T
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), text[:, 1:].flatten())


class Training:
    """Model, optimizer and data; `compute` is a forward and a backward pass of real work."""

    def __init__(self, state_bytes: int, *, stepped: bool = True) -> None:
        """
        Args:
            stepped: it has taken a step, and so has gradients and moments. A loop that was just (re)started has neither.
        """
        torch.manual_seed(0)
        width = max(8, round((state_bytes / 12 / (12 * LAYERS + 50257 / 768 + 4 / 3)) ** 0.5 / 8) * 8)
        self.tokens, self.context = width * 50257 // 768, max(16, width * 4 // 3)
        self.model = Decoder(width, self.tokens, self.context)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6, fused=True)
        self.text = self._text(16)
        if stepped:
            self.compute()
            self.optimizer.step()  # makes the moments

    def _text(self, length: int) -> torch.Tensor:
        rows = -(-length // self.context)
        return torch.randint(self.tokens, (rows, min(length, self.context)))

    def lengthen(self) -> None:
        """Twice as much work a step."""
        self.text = self._text(2 * self.text.numel())

    def compute(self) -> None:
        """The forward and the backward pass of one step."""
        self.optimizer.zero_grad(set_to_none=False)
        self.model(self.text).backward()

    @property
    def state(self) -> dict[str, object]:
        return {"model": self.model, "optim": self.optimizer}

    def ranges(self) -> list[tuple[int, int]]:
        """(address, bytes) of every tensor of the state."""
        moments = [t for entry in self.optimizer.state.values() for t in entry.values() if isinstance(t, torch.Tensor)]
        return [(t.data_ptr(), t.nbytes) for t in (*self.model.parameters(), *moments)]
