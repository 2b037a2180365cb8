"""The CPU communicator whose collectives can be made to go wrong."""

from __future__ import annotations

import torch

from workers.platforms.communicator import OutOfPlaceCpuCommunicator
from workers.selftest import faults


class FaultyCpuCommunicator(OutOfPlaceCpuCommunicator):
    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        return faults.collective("all_reduce", input_, super().all_reduce)

    def reduce_scatter(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        right = super().reduce_scatter
        return faults.collective("reduce_scatter", input_, lambda value: right(value, dim))

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        right = super().all_gather
        if dim != 0:
            # Logits are gathered by columns; activations by tokens.
            return right(input_, dim)
        return faults.collective("all_gather", input_, lambda value: right(value, dim))
