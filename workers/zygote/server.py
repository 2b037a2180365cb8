"""``python -m workers.zygote.server LISTENER LIFELINE``: import what engines need, then fork one per connection.

A connection carries one request and the descriptors that go with it (see ``workers.zygote.requests``), and is answered
twice: with the number of the process that was forked, and with its exit status when it has ended. The forked process is
the engine's supervisor (``workers.supervisor``), which forks the engine itself. When the lifeline closes, whoever
wanted this process is gone: it ends, and the kernel takes its forks along.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import traceback
from dataclasses import dataclass

from workers import environment
from workers.zygote import preload
from workers.zygote.fork import become_supervisor, find_title
from workers.zygote.requests import LARGEST, READY, Forked, Request

PATIENCE_S = 10.0
"""For a request after its connection."""


@dataclass(frozen=True)
class _Child:
    pid: int
    pidfd: int
    connection: socket.socket


class Server:
    """One thread, which waits for connections and for the end of what it forked.

    ``before``: environment variables as they were when imports began; ``for_ranks``: those of them that an engine sets
    for its ranks, and need not be given.
    """

    def __init__(
        self, listener: socket.socket, lifeline: int, before: dict[str, str], for_ranks: dict[str, str]
    ) -> None:
        self._listener = listener
        self._lifeline = lifeline
        self._before = before
        self._for_ranks = for_ranks
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(lifeline, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until the lifeline is closed."""
        while True:
            for key, _ in self._selector.select():
                if key.fd == self._lifeline:
                    return
                if key.fd == self._listener.fileno():
                    self._accept()
                else:
                    self._bury(self._children.pop(key.fd))

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE_S)
        try:
            connection.send(READY)
            data, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 2)
            request = Request.model_validate_json(data)
            missing = environment.differing(self._for_ranks | request.env, self._before)
            if missing:
                connection.send(Forked(differing=missing).model_dump_json().encode())
                connection.close()
            else:
                self._fork(request, connection, *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            print(f"a request could not be served: {error}", file=sys.stderr, flush=True)
            connection.close()

    def _fork(self, request: Request, connection: socket.socket, lifeline: int, output: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                self._leave(connection)
                become_supervisor(request, self._for_ranks | self._set_by_imports(), lifeline, output)
            except BaseException:
                traceback.print_exc()
            finally:
                # Whatever went wrong: a fork must not go on as a second server.
                os._exit(1)
        child = _Child(pid, os.pidfd_open(pid), connection)
        self._children[child.pidfd] = child
        self._selector.register(child.pidfd, selectors.EVENT_READ)
        connection.send(Forked(pid=pid).model_dump_json().encode())

    def _set_by_imports(self) -> dict[str, str]:
        """An engine that imported by itself would have these too."""
        return {name: value for name, value in os.environ.items() if self._before.get(name) != value}

    def _leave(self, connection: socket.socket) -> None:
        """In a fork: let go of all that is the server's."""
        self._selector.close()
        self._listener.close()
        os.close(self._lifeline)
        connection.close()
        for child in self._children.values():
            os.close(child.pidfd)
            child.connection.close()

    def _bury(self, child: _Child) -> None:
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        _, status = os.waitpid(child.pid, 0)
        with contextlib.suppress(OSError):
            child.connection.send(Forked(status=os.waitstatus_to_exitcode(status)).model_dump_json().encode())
        child.connection.close()


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    find_title()
    for_ranks = json.loads(os.environ.pop(environment.FOR_RANKS, "{}"))
    before = dict(os.environ)
    preload.load()
    environment.imported_with = dict(os.environ)
    Server(listener, int(sys.argv[2]), before, for_ranks).serve()
    # Nothing is left to be written, and an interpreter with all of vLLM in it takes a second to end.
    os._exit(0)


if __name__ == "__main__":
    main()
