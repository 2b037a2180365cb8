"""Two served controllers on one PostgreSQL, both alive: one dispatches, and the other goes on when that is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.domain.lifecycle import State
from service.settings import Settings
from service.store import Store, open_store, repositories
from workers.protocol import Check

from .scripted import Asked, cells, has_ended, settings_in, short_folder, store_sweep, until
from .served import controller_of, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CELLS = 4


@pytest.fixture
def settings(postgres_url: str) -> Iterator[Settings]:
    with short_folder() as folder:
        yield settings_in(folder / "home", database_url=postgres_url)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = open_store(settings.store_url)
    yield store
    store.close()


@pytest.fixture
def sweep(settings: Settings, store: Store) -> str:
    """Its first cell needs shared arms, one is done soon, and the others wait for a gate."""
    gated = [Asked(f"g{number}", (Check.COMPILE,), env={"GATE": str(gate(settings))}) for number in range(CELLS - 2)]
    return store_sweep(settings, store, Asked("shares"), Asked("soon", (Check.COMPILE,)), *gated)


def gate(settings: Settings) -> Path:
    return settings.home / "gate"


def leader(store: Store) -> str | None:
    with store.reading() as session:
        found = repositories.get_leader(session, "shared")
    return found.owner if found else None


def leads(command: subprocess.Popen[bytes], store: Store) -> bool:
    return f":{controller_of(command).pid}:" in str(leader(store))


def owners(store: Store, sweep: str) -> set[str | None]:
    """Whose the jobs are that run now."""
    with store.reading() as session:
        return {job.owner for job in repositories.jobs_of(session, sweep) if job.state is State.RUNNING}


def test_one_dispatches_and_the_other_goes_on_when_it_is_killed(settings: Settings, store: Store, sweep: str) -> None:
    own = {"SHARDPROOF_DATABASE_URL": str(settings.database_url)}
    with serving(settings, **own) as first, serving(settings, **own) as second:
        until(lambda: cells(store, sweep)["soon"].state.ended and owners(store, sweep), 240)
        assert owners(store, sweep) == {leader(store)}, "nobody but the leader runs anything"
        leading, other = (first, second) if leads(first, store) else (second, first)
        assert leads(leading, store)
        assert other.poll() is None
        controller_of(leading).kill()
        until(lambda: leads(other, store))
        gate(settings).touch()
        until(lambda: has_ended(store, sweep))
        assert other.poll() is None
    found = cells(store, sweep)
    assert [cell.state for cell in found.values()] == [State.FINISHED] * CELLS
    for cell in found.values():
        with store.reading() as session:
            states = [run.state for run in repositories.runs_of(session, sweep, cell.id)]
        assert states[-1] is State.FINISHED, cell.name
        assert set(states[:-1]) <= {State.CRASHED}, "what the killed one had begun was lost, and counts once"
