"""What a verdict means and what to do about it, in a sentence each. ``docs/verdicts.md`` has the whole."""

from __future__ import annotations

from service.domain.verdict import Verdict

ADVICE: dict[Verdict, str] = {
    Verdict.CRASHED: "An engine died or the run was lost. Read rank, phase and the last lines of its log below.",
    Verdict.TIMED_OUT: "An arm was not done in time. The stacks of all its processes say what it waited for; raise "
    "timeouts only if the phase was slow and not stuck.",
    Verdict.FAIL_RESIDUAL: "The residual stream is wrong. Do not serve this configuration; look at what runs right "
    "before the first wrong site.",
    Verdict.FAIL_OUTPUT: "Tokens or accuracy differ by more than a tie or chance. Do not serve this configuration.",
    Verdict.FAIL_GUARD: "A guard of full-graph SP does not hold, so this vLLM does not protect you: serve SP with "
    "splitting_ops: [] only.",
    Verdict.INVALID_MEASUREMENT: "The measurement proves nothing. Mend what the reason names, then run it again.",
    Verdict.UNSUPPORTED: "This vLLM has no such setting. Expect it, or take the cell out.",
    Verdict.NOT_EXERCISED: "SP is on and its pass did not rewrite what it should have: this computes what it would "
    "without SP. Often there is a norm that the pass does not know.",
    Verdict.REGRESSION: "Slower than its baseline. Compare versions and phases with the last good night; if the new "
    "time is right, accept it as the baseline.",
    Verdict.DOWNGRADED: "A setting that was written is not what runs. Write what you want to run, or expect this.",
    Verdict.DUPLICATE: "The same effective settings as another cell, so it was run once and the result is shared.",
    Verdict.CANCELLED: "It did not run to its end, as somebody cancelled it.",
    Verdict.SKIPPED: "It did not run.",
    Verdict.PASS: "All that was asked for was compared in full, and holds.",
}
