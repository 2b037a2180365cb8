"""Write the tables of ``shardproof bench regression`` into docs/regressions.md, between its marks."""

from __future__ import annotations

from pathlib import Path

from service.domain.regression import DEFAULT_RULES
from service.regression import regression
from service.regression.table import written

PAGE = Path(__file__).parent.parent / "docs" / "regressions.md"

if __name__ == "__main__":
    rows = regression(DEFAULT_RULES, quick=False)["rows"]
    PAGE.write_text(written(PAGE.read_text(), rows))
