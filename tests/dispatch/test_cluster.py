"""Where Ray keeps its sockets."""

from __future__ import annotations

import pytest

from service.dispatch.cluster import LONGEST_RAY_FOLDER, _ray_folder

RAYS_OWN = "/session_2026-11-30_04-16-54_272365_1234567/sockets/plasma_store"
SOCKET_PATH = 107


def test_the_longest_folder_still_fits_a_socket() -> None:
    folder = _ray_folder("/" + "t" * (LONGEST_RAY_FOLDER - 3))
    assert len(folder) == LONGEST_RAY_FOLDER
    assert len(folder + RAYS_OWN) <= SOCKET_PATH


def test_a_longer_one_is_refused_with_what_to_do() -> None:
    with pytest.raises(OSError, match="by 5 characters; set TMPDIR to a shorter one"):
        _ray_folder("/" + "t" * (LONGEST_RAY_FOLDER + 2))
