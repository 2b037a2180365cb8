"""What crosses from one pipeline stage to the next, as the model gives it and as the next one is given it.

From module hooks: they run inside a captured CUDA graph as any other kernel does, since they only write into slots.
"""

from __future__ import annotations

from typing import Any

import torch

from workers.probes.recorder import RECEIVED, RECORDER, SENT


def install(model: torch.nn.Module) -> None:
    """Announce every forward pass of ``model`` to the recorder, and keep what it is given and what it passes on."""

    def before(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        RECORDER.forward(_tokens(args, kwargs))
        received = kwargs.get("intermediate_tensors")
        if received is not None:
            RECORDER.crossing(RECEIVED, received.tensors)

    def after(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        sent = getattr(output, "tensors", None)
        if isinstance(sent, dict):
            RECORDER.crossing(SENT, sent)

    model.register_forward_pre_hook(before, with_kwargs=True)
    model.register_forward_hook(after, with_kwargs=True)


def _tokens(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """As many as the model has positions to work on; multi-dimensional positions have the tokens last."""
    positions = kwargs["positions"] if "positions" in kwargs else args[1]
    return int(positions.shape[-1])
