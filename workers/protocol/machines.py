"""An engine that more than one machine runs."""

from __future__ import annotations

from workers.protocol.words import Message


class Portion(Message):
    """The part of an engine that one machine runs: ``number`` of ``count``, each with equally many ranks, in order.

    Number 0 leads. ``address``, ``port``: where the ranks meet, on the machine of number 0.
    """

    number: int
    count: int
    address: str
    port: int

    @property
    def leads(self) -> bool:
        return self.number == 0


class Machine(Message):
    """Where ``ranks`` ran. ``host``: what the machine calls itself; ``node``: what Ray calls it."""

    host: str
    node: str
    ranks: list[int]
