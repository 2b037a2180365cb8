"""Who drives a sweep: this process, and no later one that happens to have its id."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from service.dispatch import identity

HOST = socket.gethostname()


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of this machine; it ends when its input does."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process


def identity_of(pid: int) -> str:
    return f"{HOST}:{pid}:{psutil.Process(pid).create_time():.2f}"


def end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(30)


def test_i_am_host_process_and_start() -> None:
    assert identity.me() == identity_of(os.getpid())
    assert identity.me() == identity.me()
    assert identity.alive(identity.me())


def test_another_process_is_alive_until_it_ends(other: subprocess.Popen[bytes]) -> None:
    owner = identity_of(other.pid)
    assert owner != identity.me()
    assert identity.alive(owner)
    end(other)
    assert not identity.alive(owner)


def test_a_later_process_with_the_same_id_is_another(other: subprocess.Popen[bytes]) -> None:
    host, pid, start = identity_of(other.pid).split(":")
    assert not identity.alive(f"{host}:{pid}:{float(start) - 60:.2f}")


def test_a_process_of_another_machine_cannot_be_asked_and_counts_as_running() -> None:
    assert identity.alive(f"not-{HOST}:{os.getpid()}:1.00")
    assert identity.alive("10.0.0.7:1:1.00")


@pytest.mark.parametrize("owner", [f"{HOST}:0x1:1.00", f"{HOST}::1.00", f"{HOST}:-5:1.00"])
def test_an_owner_of_this_machine_that_is_no_process_is_not_alive(owner: str) -> None:
    assert not identity.alive(owner)


def test_a_host_may_have_colons_in_its_name() -> None:
    assert identity.alive("fe80::1:17:1.00")


def test_an_ended_process_that_nobody_has_waited_for_is_not_alive(other: subprocess.Popen[bytes]) -> None:
    owner = identity_of(other.pid)
    assert other.stdin is not None
    other.stdin.close()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.alive(owner)
