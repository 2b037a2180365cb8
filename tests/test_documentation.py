"""The documentation says what the program does: settings, commands, verdicts, tiny models."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import typer.main

from service.cli import app
from service.domain.verdict import Verdict
from service.settings import Settings
from workers.engine.models import TinyModel
from workers.probes.span_phases import PHASES
from workers.probes.timeline import MAIN_PHASES
from workers.protocol import BatchPlan, Check, Patch, Role

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
METRICS = ROOT / "service" / "metrics.py"


def words(name: str) -> set[str]:
    """What stands in code quotes in a document."""
    text = re.sub(r"```.*?```", "", (DOCS / name).read_text(), flags=re.DOTALL)
    return {part for quoted in re.findall(r"`([^`]+)`", text) for part in (quoted, quoted.split()[0])}


def test_every_setting_is_documented() -> None:
    assert {f"SHARDPROOF_{name.upper()}" for name in Settings.model_fields} <= words("settings.md")


def test_no_setting_is_documented_that_is_not_there() -> None:
    known = {f"SHARDPROOF_{name.upper()}" for name in Settings.model_fields} | {"SHARDPROOF_URL", "SHARDPROOF_KEY"}
    assert {word for word in words("settings.md") if word.startswith("SHARDPROOF_")} == known


def test_every_verdict_is_documented() -> None:
    assert {str(verdict) for verdict in Verdict} <= words("verdicts.md")


def test_every_word_of_the_matrix_is_documented() -> None:
    patches = {f"patches.{patch}" for patch in Patch}
    options = {field.name for field in dataclasses.fields(TinyModel)} - {"kind"}
    requests = {f"batch.{field}" for field in BatchPlan.model_fields}
    assert {str(check) for check in Check} | patches | options | requests <= words("matrix.md")


def test_every_phase_is_documented() -> None:
    known = {*PHASES, *MAIN_PHASES, "launch", "spawn", "rank_import", "rank_init", "first_token", "exit"} - {"shutdown"}
    table = (DOCS / "report.md").read_text().split("| phase | where | what |")[1].split("\n\n")[0]
    assert {phase for phase in known if f"`{phase}`" not in table} == set()


def test_every_metric_is_documented_and_no_other() -> None:
    written = {f"shardproof_{name}" for name in re.findall(r'"(?:shardproof_)?(\w+)",?\s+"[A-Z]', METRICS.read_text())}
    assert len(written) > 5
    documented = {word.removesuffix("_total") for word in words("operations.md") if word.startswith("shardproof_")}
    assert documented == written


def test_every_arm_is_documented() -> None:
    assert {str(role) for role in Role} <= words("how-it-works.md")


def test_every_command_stands_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    group = typer.main.get_command(app)
    names = set(getattr(group, "commands", {}))
    assert names
    for name in names:
        assert re.search(rf"shardproof {name}|make {name}", readme), name


@pytest.mark.parametrize("page", [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
