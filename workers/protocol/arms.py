"""How one arm ended."""

from __future__ import annotations

from workers.protocol.machines import Machine
from workers.protocol.words import Message, Outcome, Role


class StuckProcess(Message):
    """A process of an arm whose time was up.

    ``s``: how long it had been in its phase. ``doing``: the likely cause in words, or why it has no stack. A process
    that is neither rank nor ``main`` is a helper of one of them.
    """

    pid: int
    rank: int | None
    main: bool
    phase: str | None
    s: float | None
    doing: str


class Failure(Message):
    """How an arm died: which rank in which phase, what it said, and the last lines of its own log.

    Of an arm whose time was up also: ``since_s``, how many seconds the rank had been in that phase; ``cause``, the
    likely one in words; ``stacks``, the file with the stacks of all its processes; ``processes``, what each was at.
    """

    phase: str | None
    rank: int | None
    message: str
    log_tail: list[str]
    since_s: float | None = None
    cause: str | None = None
    stacks: str | None = None
    processes: list[StuckProcess] = []


class Traces(Message):
    """What a run that asks for traces keeps of an arm, as paths within the arm's folder.

    ``logs``: PyTorch's structured trace, one log to each process that compiled. ``perfetto``: a trace of all processes
    in Chrome's format, ``tlparse``: its report over all ranks; ``None`` where there is none, and ``notes`` says why.
    """

    logs: list[str]
    perfetto: str | None
    tlparse: str | None
    notes: list[str] = []


class ArmReport(Message):
    """``repeat``: which start of its role in the run this was, from 1. ``traces``: where the run asked for them.

    ``clock_set_by_s``: by how many seconds the wall clock was set while the arm ran, ``None`` when it was not.
    ``forked``: from a process that had imported vLLM; otherwise the engine imported by itself, and ``not_forked`` says
    why. ``None`` where no engine was started, or nobody noted it. ``machines``: which ranks ran where, if several
    machines ran the engine; empty where one had them all.
    """

    role: Role
    key: str
    outcome: Outcome
    wall_s: float
    folder: str
    failure: Failure | None
    peak_rss_bytes: int | None = None
    repeat: int = 1
    traces: Traces | None = None
    clock_set_by_s: float | None = None
    forked: bool | None = None
    not_forked: str | None = None
    machines: list[Machine] = []
