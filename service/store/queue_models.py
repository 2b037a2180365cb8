"""Tables of the queue: what there is to run, what of it waits for what, and who leads."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Float, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models import Base


class QueueRow(Base):
    """How a sweep is dispatched. ``queue``: whose dispatcher takes its jobs. ``places``: its engine environments."""

    __tablename__ = "queue"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True)
    queue: Mapped[str]
    priority: Mapped[int]
    max_parallel: Mapped[int | None]
    key_id: Mapped[str | None]
    places: Mapped[dict[str, Any]]


class JobRow(Base):
    """A cell or a shared arm that is run, at least once.

    ``rank``: smaller comes first, the sweep's priority with its sign turned, so that one index gives the order.
    ``waits``: how many of the jobs that it needs have not ended. ``due``: Unix time from which it may be leased.
    ``lost``: runs of it that were lost, ``leases``: all that were begun. ``owner``, ``run_id``: who has a lease on it
    and for which run, while it is leased or running.
    """

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(primary_key=True)
    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweeps.id", ondelete="CASCADE"))
    queue: Mapped[str]
    kind: Mapped[str]
    cell_id: Mapped[str]
    position: Mapped[int]
    rank: Mapped[int]
    key_id: Mapped[str | None]
    state: Mapped[str]
    waits: Mapped[int]
    due: Mapped[float] = mapped_column(Float(53))
    lost: Mapped[int]
    leases: Mapped[int]
    owner: Mapped[str | None]
    run_id: Mapped[str | None]
    ranks: Mapped[int]
    devices: Mapped[int]
    work: Mapped[dict[str, Any]]
    story: Mapped[list[Any]]

    __table_args__ = (
        Index("ix_jobs_queue_state_waits_rank_sweep_id_position", "queue", "state", "waits", "rank", "sweep_id",
              "position"),
        Index("ix_jobs_sweep_id_cell_id", "sweep_id", "cell_id"),
    )  # fmt: skip


class JobNeedRow(Base):
    """A job waits until the one that it needs has ended."""

    __tablename__ = "job_needs"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    needs_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)

    __table_args__ = (Index("ix_job_needs_needs_id", "needs_id"),)


class LeaderRow(Base):
    """Which controller dispatches the queue ``name``. ``beat`` goes up as long as it lives."""

    __tablename__ = "leaders"

    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    beat: Mapped[int]
