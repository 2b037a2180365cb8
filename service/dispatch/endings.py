"""The sweeps that were submitted here, and what is tidied up when one has ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from service.dispatch import retention
from service.settings import Settings
from service.store import Store

logger = logging.getLogger(__name__)


class Endings:
    """May be told, and asked, from any thread. One thread of its own tidies up."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._ended: dict[str, threading.Event] = {}
        self._tidying = ThreadPoolExecutor(1, thread_name_prefix="tidy")

    def expect(self, sweep_id: str) -> None:
        """The sweep was submitted here."""
        self._ended.setdefault(sweep_id, threading.Event())

    @property
    def expected(self) -> list[str]:
        return list(self._ended)

    def has_ended(self, sweep_id: str) -> None:
        self._tidying.submit(self._conclude, sweep_id)

    def wait(self) -> None:
        """Until every sweep that was submitted here has ended, and is tidied up."""
        for ended in list(self._ended.values()):
            ended.wait()

    def tidy(self, ended: Sequence[str]) -> None:
        """Take away what serves nobody any more. What cannot be taken away costs disk and no sweep."""
        try:
            for sweep_id in ended:
                retention.forget_caches(self._settings.artifacts_dir / sweep_id)
            retention.tidy(self._settings, self._store)
        except Exception:
            logger.exception("old artifacts in %s", self._settings.artifacts_dir)

    def close(self) -> None:
        self._tidying.shutdown()

    def _conclude(self, sweep_id: str) -> None:
        self.tidy([sweep_id])
        self._ended.setdefault(sweep_id, threading.Event()).set()
