"""How often the starts that are timed are made."""

from __future__ import annotations

from dataclasses import dataclass

from workers.protocol import Role

MOST = 20


@dataclass(frozen=True)
class Repeat:
    """Starts per role, 1 to ``MOST``. Every cold start has a cache root of its own; every warm one the first cold's."""

    cold: int = 1
    warm: int = 1

    def of(self, role: Role) -> int:
        """How often an arm is started; only those that are timed more than once."""
        return {Role.COLD: self.cold, Role.WARM: self.warm}.get(role, 1)


ONCE = Repeat()
