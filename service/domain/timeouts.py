"""How long an arm may take."""

from __future__ import annotations

from dataclasses import dataclass

from workers.protocol import Role


@dataclass(frozen=True)
class Timeouts:
    """Seconds from the start of an arm until it is killed."""

    cold: float = 1800.0
    warm: float = 600.0
    probe: float = 1800.0
    eval: float = 7200.0

    def of(self, role: Role) -> float:
        """The timeout of an arm; the replicated and the reference arm do what the probe does."""
        own = {Role.COLD: self.cold, Role.WARM: self.warm, Role.EVAL: self.eval, Role.EVAL_REPLICATED: self.eval}
        return own.get(role, self.probe)
