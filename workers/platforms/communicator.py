"""The CPU communicator with the all-reduce that vLLM's custom operation promises: out of place."""

from __future__ import annotations

import torch
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class OutOfPlaceCpuCommunicator(CpuCommunicator):
    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks, in a new tensor.

        ``torch.ops.vllm.all_reduce`` is declared functional, so compiled code may read its input afterwards. The stock
        communicator reduces in place and returns its input: that code then reads overwritten values.
        """
        reduced: torch.Tensor = super().all_reduce(input_.clone())  # type: ignore[no-untyped-call]
        return reduced
