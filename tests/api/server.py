"""The application on a real socket: streams, broken connections and clients need one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

PATIENCE_S = 30.0


@contextlib.contextmanager
def serving(app: FastAPI, port: int = 0, root_path: str = "") -> Iterator[str]:
    """The address of ``app``, served on loopback by a thread of this process. ``port``: 0 picks a free one.

    ``root_path``: what a proxy in front takes away of each path.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        options = {"log_level": "error", "lifespan": "off", "timeout_graceful_shutdown": 1}
        server = uvicorn.Server(uvicorn.Config(app, root_path=root_path, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
