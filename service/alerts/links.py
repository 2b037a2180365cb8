"""Absolute addresses of pages, for texts that are read elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from service.page_paths import cell_page, sweep_page


@dataclass(frozen=True)
class Links:
    """``base``: where the controller is reached, without a slash at its end; ``None`` where nobody said it."""

    base: str | None

    def sweep(self, sweep_id: str) -> str | None:
        return None if self.base is None else f"{self.base}/{sweep_page(sweep_id)}"

    def cell(self, sweep_id: str, cell_id: str) -> str | None:
        return None if self.base is None else f"{self.base}/{cell_page(sweep_id, cell_id)}"
