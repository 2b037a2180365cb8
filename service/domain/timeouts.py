"""How long an arm may take."""

from __future__ import annotations

from dataclasses import dataclass

from workers.protocol import Role

EVALUATES = (Role.EVAL, Role.EVAL_REPLICATED)


@dataclass(frozen=True)
class Timeouts:
    """Seconds from the start of an arm until it is killed.

    ``phase``: how long a rank may be in one phase, ``silence``: how long nothing may be heard of an engine. ``None``:
    as long as the arm may take.
    """

    cold: float = 1800.0
    warm: float = 600.0
    probe: float = 1800.0
    eval: float = 7200.0
    phase: float | None = None
    silence: float | None = None

    def of(self, role: Role) -> float:
        """The timeout of an arm; the replicated and the reference arm do what the probe does."""
        own = {Role.COLD: self.cold, Role.WARM: self.warm, Role.EVAL: self.eval, Role.EVAL_REPLICATED: self.eval}
        return own.get(role, self.probe)

    def of_phase(self, role: Role) -> float | None:
        """The limit of a phase. All of an evaluation is one phase of its engine: it has the arm's limit alone."""
        return None if role in EVALUATES else self.phase

    def of_silence(self, role: Role) -> float | None:
        """The limit of silence; nothing is heard of an evaluation until its end."""
        return None if role in EVALUATES else self.silence
