"""The weighted mean of tensors over the ranks, in a few large sums, as runtime/train/local_sgd/average.h computes it."""
from __future__ import annotations

import typing

import torch

_PIECE_ELEMENTS = 4 << 20  # bounds how long one sum takes, and the additional memory
_SENT_AS = torch.float32, torch.float64, torch.int64


class Part(typing.NamedTuple):
    tensor: torch.Tensor
    origin: torch.Tensor | None = None
    """What the tensor was on all ranks before. Only the change is sent then, which loses fewer bits in rounding. None: its values are sent, so a
    mean of positive numbers is positive."""
    counts: bool = False
    """It has no mean: all ranks take what rank 0 has, which is never without samples where another has some. Nor have tensors of integers."""

    @property
    def is_taken(self) -> bool:
        return self.counts or not self.tensor.is_floating_point()

    @property
    def sent_as(self) -> torch.dtype:
        """Half precision would round away small differences between the ranks."""
        if not self.tensor.is_floating_point():
            return torch.int64
        return torch.float64 if self.tensor.dtype == torch.float64 else torch.float32


def pieces(parts: typing.Sequence[Part]) -> typing.Iterator[list[Part]]:
    """What is sent at once. The same on each rank."""
    for dtype in _SENT_AS:
        piece: list[Part] = []
        elements = 0
        for part in parts:
            if part.sent_as == dtype:
                piece.append(part)
                elements += part.tensor.numel()
            if elements >= _PIECE_ELEMENTS:
                yield piece
                piece, elements = [], 0
        if piece:
            yield piece


def weighted(piece: list[Part], weight: float, *, is_first: bool, device: torch.device) -> torch.Tensor:
    """What this rank gives to the sum. The weights of all ranks add up to 1."""
    given = []
    for part in piece:
        value = part.tensor.detach().to(device, part.sent_as)
        if part.is_taken:
            value = value if is_first else torch.zeros_like(value)
        elif part.origin is not None:
            value = (value - part.origin.to(value)) * weight
        else:
            value = value * weight
        given.append(value.reshape(-1))
    return torch.cat(given)


@torch.no_grad()
def take(piece: list[Part], summed: torch.Tensor) -> None:
    """Writes the mean into the tensors."""
    for part, mean in zip(piece, torch.split(summed, [part.tensor.numel() for part in piece])):
        value = mean.view(part.tensor.shape)
        part.tensor.copy_(value if part.origin is None or part.is_taken else value + part.origin.to(value))
