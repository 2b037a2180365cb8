"""Messages between the controller, the run actor and the engine process.

Everything here crosses a process boundary as JSON, so it is plain data: pydantic models without behaviour, frozen,
refusing fields they do not know. ``PROTOCOL`` goes up when a field changes its meaning.

Times are seconds. Tensors never travel here: they are files in an arm's folder.
"""

from __future__ import annotations

from pydantic import ValidationError

from workers.protocol.accuracy import Accuracy, Evaluation, TaskScore
from workers.protocol.arms import ArmReport, Failure, StuckProcess, Traces
from workers.protocol.audit import (
    AuditCell,
    AuditedCell,
    AuditReply,
    AuditRequest,
    Catalogue,
    Change,
    Diagnosis,
    Environment,
    Guard,
    KeyInfo,
    Problem,
    Shape,
)
from workers.protocol.environments import DEFAULT, EnvironmentSpec
from workers.protocol.evidence import Evidence, Exercised, SequenceParallelism
from workers.protocol.fallback import ArmFallback, Fallback, FallbackOp, RankFallback
from workers.protocol.machines import Machine, Portion
from workers.protocol.outputs import Difference, OutputClass, OutputComparison
from workers.protocol.residual import Divergence, Floor, Invariant, Onset, Residual, SiteScore
from workers.protocol.runs import (
    AGAIN,
    ROUNDING,
    ArmSpec,
    ArtifactsPlace,
    BatchPlan,
    Event,
    Fault,
    Policy,
    Recorded,
    RunSpec,
    Trial,
)
from workers.protocol.starts import Compile, KeyDifference, KeyFactor, TimedStart
from workers.protocol.times import (
    Artifacts,
    CompileTimes,
    Part,
    Phase,
    ProcessTimes,
    RankArtifacts,
    RankResources,
    RankTimes,
    Span,
)
from workers.protocol.words import (
    INVARIANTS,
    ONE_ORDER,
    PROTOCOL,
    REPLICAS_DIFFER,
    SKETCH_NUMBERS,
    Check,
    Message,
    Outcome,
    Patch,
    PatchMode,
    PatchState,
    Role,
    Settings,
)

__all__ = [
    "AGAIN",
    "DEFAULT",
    "INVARIANTS",
    "ONE_ORDER",
    "PROTOCOL",
    "REPLICAS_DIFFER",
    "ROUNDING",
    "SKETCH_NUMBERS",
    "Accuracy",
    "ArmFallback",
    "ArmReport",
    "ArmSpec",
    "Artifacts",
    "ArtifactsPlace",
    "AuditCell",
    "AuditReply",
    "AuditRequest",
    "AuditedCell",
    "BatchPlan",
    "Catalogue",
    "Change",
    "Check",
    "Compile",
    "CompileTimes",
    "Diagnosis",
    "Difference",
    "Divergence",
    "Environment",
    "EnvironmentSpec",
    "Evaluation",
    "Event",
    "Evidence",
    "Exercised",
    "Failure",
    "Fallback",
    "FallbackOp",
    "Fault",
    "Floor",
    "Guard",
    "Invariant",
    "KeyDifference",
    "KeyFactor",
    "KeyInfo",
    "Machine",
    "Message",
    "Onset",
    "Outcome",
    "OutputClass",
    "OutputComparison",
    "Part",
    "Patch",
    "PatchMode",
    "PatchState",
    "Phase",
    "Policy",
    "Portion",
    "Problem",
    "ProcessTimes",
    "RankArtifacts",
    "RankFallback",
    "RankResources",
    "RankTimes",
    "Recorded",
    "Residual",
    "Role",
    "RunSpec",
    "SequenceParallelism",
    "Settings",
    "Shape",
    "SiteScore",
    "Span",
    "StuckProcess",
    "TaskScore",
    "TimedStart",
    "Traces",
    "Trial",
    "ValidationError",
]
