"""What is asked of an arm that evaluates, and what came of it."""

from __future__ import annotations

from workers.protocol.words import Message, Role


class Evaluation(Message):
    """Tasks of lm_eval, by name. ``folders``: where task files of our own lie, the first that has a name wins.

    ``limit``: at most so many samples of each task. ``num_fewshot``: examples before each sample; ``None`` leaves it to
    the task. ``seed``: by which examples are drawn.
    """

    tasks: list[str]
    limit: int | None = None
    num_fewshot: int | None = None
    seed: int = 1234
    folders: list[str] = []


class TaskScore(Message):
    """One metric of one task. What could not be computed, or is no finite number, is ``None``.

    ``value`` and ``stderr`` are lm_eval's; ``control_value`` and ``control_stderr`` those of the arm compared with.
    ``difference`` is ``value`` less ``control_value``. Where ``paired``, ``difference_stderr`` is that of the mean of
    the differences sample by sample, for both arms were given the same samples; else the two standard errors are added
    in squares, as of independent arms. ``changed``: samples whose score differs.
    """

    task: str
    metric: str
    filter: str
    samples: int
    num_fewshot: int | None
    value: float | None
    stderr: float | None
    control_value: float | None = None
    control_stderr: float | None = None
    difference: float | None = None
    difference_stderr: float | None = None
    paired: bool = False
    changed: int | None = None


class Accuracy(Message):
    """What ``subject`` scored, and ``against`` beside it (``None``: the cell has SP off, there is nothing to compare).

    ``not_finite`` and ``control_not_finite`` count log-probabilities that are no finite number. ``truncated``: requests
    that were longer than the model takes and lost their beginning. ``missing``: what one arm has and the other has not.
    ``resamples``: how many bootstrap resamples stand behind the standard errors that have no closed form.
    """

    subject: Role
    against: Role | None
    tasks: list[TaskScore]
    not_finite: int
    control_not_finite: int | None
    truncated: int
    missing: list[str]
    limit: int | None
    seed: int
    resamples: int
    lm_eval: str
