"""From a matrix file to resolved cells, as users get it: processes of their own are asked, and no engine is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from service.dispatch import questions
from service.dispatch.plan import Plan, plan
from service.domain.arms import needs
from service.domain.cell import Cell
from service.domain.document import parse
from service.domain.errors import MatrixError, MatrixProblem
from service.domain.verdict import Verdict
from service.settings import Settings
from workers.protocol import AuditReply, AuditRequest, Check, Patch, PatchState

pytestmark = pytest.mark.slow

QUICKSTART = Path(__file__).parents[2] / "deploy/matrices/quickstart.yaml"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """One home for all, so that the catalogue is asked for once."""
    return Settings(home=tmp_path_factory.mktemp("home"), max_ranks_per_machine=8)


@pytest.fixture
def no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong by itself is refused before the engine is asked about it."""

    def audit(settings: Settings, cells: Sequence[Cell]) -> AuditReply:
        raise AssertionError("the engine was asked")

    monkeypatch.setattr(questions, "audit", audit)


def refusal(text: str, settings: Settings, only: str | None = None) -> MatrixError:
    with pytest.raises(MatrixError) as refused:
        plan(parse(text), settings, only)
    assert not settings.artifacts_dir.exists(), "an arm was started"
    return refused.value


def line_of(text: str, word: str) -> int:
    (line,) = (number for number, line in enumerate(text.splitlines(), 1) if word in line)
    return line


# --- wrong by itself -------------------------------------------------------------------------------------------------

HEAD = "name: wrong\nengine:\n  model: tiny:llama\n"


@pytest.mark.usefixtures("no_audit")
@pytest.mark.parametrize(
    ("text", "word", "said", "advice"),
    [
        pytest.param(
            f"{HEAD}  tensor_paralel_size: 2\n",
            "paralel",
            'unknown key "tensor_paralel_size"',
            "The nearest known key is tensor_parallel_size",
            id="unknown key",
        ),
        pytest.param(
            f"{HEAD}matrx:\n  dtype: [float32]\n",
            "matrx",
            'unknown key "matrx"',
            "The nearest known one is matrix",
            id="unknown section",
        ),
        pytest.param(
            f"{HEAD}matrix:\n  compilation_config.pass_config.enable_ps: [true]\n",
            "enable_ps",
            "unknown key",
            "The nearest known key is compilation_config.pass_config.enable_sp",
            id="unknown axis",
        ),
        pytest.param(
            f'{HEAD}  tensor_parallel_size: "2"\n',
            "tensor_parallel_size",
            "wrong type: tensor_parallel_size expects an integer",
            "Write the number without quotes",
            id="wrong type",
        ),
        pytest.param(
            f"{HEAD}matrix:\n  compilation_config.pass_config.enable_sp: [true, maybe]\n",
            "enable_sp",
            "expects true or false",
            "Correct the value, or write null",
            id="wrong type in an axis",
        ),
        pytest.param(
            f"{HEAD}matrix:\n  dtype: []\n",
            "dtype",
            "the axis has no values",
            "Write at least one value, or remove the axis",
            id="empty axis",
        ),
        pytest.param(
            f"{HEAD}matrix:\n  tensor_parallel_size: [1, 2]\nexclude:\n"
            "  - tensor_parallel_size: 1\n  - tensor_parallel_size: 2\n",
            "exclude",
            "no cell is left: every combination is excluded",
            "Exclude less, or include a cell",
            id="nothing left",
        ),
        pytest.param(
            f"{HEAD}\tdtype: float32\n",
            "dtype",
            "tab",
            "spaces",
            id="tab",
        ),
        pytest.param(
            f"{HEAD}  dtype: [float32\nmatrix: {{}}\n",
            "matrix",
            "not valid YAML: expected ',' or ']'",
            "Check the indentation, brackets and quotes up to there",
            id="not YAML",
        ),
    ],
)
def test_what_is_wrong_by_itself_is_refused_at_its_line(
    text: str, word: str, said: str, advice: str, settings: Settings
) -> None:
    message = str(refusal(text, settings))
    assert f"line {line_of(text, word)}, column " in message
    assert said in message
    assert advice in message


@pytest.mark.usefixtures("no_audit")
def test_ten_megabytes_are_refused_unread(settings: Settings) -> None:
    text = HEAD + "include:\n" + "  - &a {dtype: float32}\n" + "  - *a\n" * 1_500_000
    assert len(text) > 10_000_000
    message = str(refusal(text, settings))
    assert "the file is larger than 1,048,576 bytes" in message
    assert "Use axes" in message


@pytest.mark.usefixtures("no_audit")
def test_aliases_count_as_often_as_they_are_used(settings: Settings) -> None:
    levels = "\n".join(f"  - &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    text = f"name: bomb\ninclude:\n  - &a0 [x, x]\n{levels}\n"
    assert len(text) < 1000
    message = str(refusal(text, settings))
    assert "line " in message
    assert "50,000" in message


@pytest.mark.usefixtures("no_audit")
def test_unknown_cell_names_the_nearest(settings: Settings) -> None:
    message = str(refusal(QUICKSTART.read_text(), settings, only="sp-full-grap"))
    assert "no cell is called" in message
    assert "Did you mean sp-full-graph?" in message


def test_interpreter_that_is_not_there_is_told_apart_from_a_wrong_matrix(settings: Settings) -> None:
    lost = settings.model_copy(update={"python": Path("/no/such/python")})
    with pytest.raises(questions.EngineEnvironmentError, match=r"/no/such/python cannot be started.*SHARDPROOF_PYTHON"):
        plan(parse(QUICKSTART.read_text()), lost)


# --- refused by the engine, or by what this machine can hold ---------------------------------------------------------

REFUSED = """\
name: refused by the engine
engine:
  dtype: float32
include:
  - name: no-model
    model: /no/such/model
  - name: no-tiny-model
    model: tiny:lama
  - name: no-norm
    model: tiny:llama?rms_norm_eps=0
  - name: no-norm-either
    model: tiny:llama
    hf_overrides: {rms_norm_eps: 0.0}
  - name: heads-do-not-divide
    model: tiny:llama
    tensor_parallel_size: 3  # of 4 heads
  - name: nine-ranks
    model: tiny:llama?heads=3&hidden=96&kv_heads=3&layers=3
    pipeline_parallel_size: 3
    tensor_parallel_size: 3  # times 3
  - name: sixteen-ranks
    model: tiny:llama?heads=16&hidden=512&kv_heads=16
    tensor_parallel_size: 16
  - name: eight-ranks
    model: tiny:llama?heads=8&hidden=256&kv_heads=8
    tensor_parallel_size: 8
  - name: too-long
    model: tiny:llama
    max_model_len: 100000
  - name: healthy
    model: tiny:llama
"""


@pytest.fixture(scope="module")
def refused(settings: Settings) -> tuple[MatrixProblem, ...]:
    return refusal(REFUSED, settings).problems


@pytest.mark.parametrize(
    ("cell", "word", "said"),
    [
        (
            "no-model",
            "model: /no/such",
            "there is no folder '/no/such/model'; give a folder with a config.json, a hub id",
        ),
        ("no-tiny-model", "tiny:lama", "there is no tiny model 'lama'; known: llama"),
        ("no-norm", "rms_norm_eps=0", "it must be above 0"),
        ("no-norm-either", "hf_overrides", "the model's rms_norm_eps is 0.0"),
        ("heads-do-not-divide", "# of 4 heads", "Total number of attention heads (4) must be divisible by"),
        (
            "nine-ranks",
            "# times 3",
            "needs 9 ranks (tensor × pipeline parallel) and at most 8 ranks may share the cores",
        ),
        ("sixteen-ranks", "tensor_parallel_size: 16", "needs 16 ranks"),
        ("too-long", "max_model_len", "User-specified max_model_len (100000) is greater than the derived"),
    ],
)
def test_what_the_engine_refuses_is_shown_at_the_line_that_asks_for_it(
    cell: str, word: str, said: str, refused: tuple[MatrixProblem, ...]
) -> None:
    (problem,) = (
        problem
        for problem in refused
        if problem.message.startswith(f"cell {cell}:") or f"cell {cell} needs" in problem.message
    )
    assert problem.place is not None
    assert problem.place.line == line_of(REFUSED, word)
    assert said in problem.message
    assert str(problem).startswith(f"line {problem.place.line}, column ")


@pytest.mark.parametrize("cell", ["nine-ranks", "sixteen-ranks"])
def test_too_many_ranks_say_what_to_do(cell: str, refused: tuple[MatrixProblem, ...]) -> None:
    (problem,) = (problem for problem in refused if problem.message.startswith(f"cell {cell} needs"))
    assert problem.hint == "Ask for fewer ranks, or raise SHARDPROOF_MAX_RANKS_PER_MACHINE"


def test_every_bad_cell_is_told_at_once_and_no_good_one(refused: tuple[MatrixProblem, ...]) -> None:
    cells = [problem.message.split()[1].rstrip(":") for problem in refused]
    assert cells == [
        "no-model",
        "no-tiny-model",
        "no-norm",
        "no-norm-either",
        "heads-do-not-divide",
        "nine-ranks",
        "sixteen-ranks",
        "too-long",
    ]
    lines = [problem.place.line for problem in refused if problem.place]
    assert lines == sorted(lines)


# --- requests that the engine cannot run -----------------------------------------------------------------------------

UNFIT = """\
name: requests that do not fit
engine:
  model: tiny:llama
  dtype: float32
  max_num_batched_tokens: 64
  max_num_seqs: 8
  kv_cache_memory_bytes: 400000
include:
  - name: too-long
    batch.waves: [[1], [509]]
  - name: too-many-tokens
    batch.waves: [[40, 25]]
  - name: too-many-requests
    batch: {waves: [[1, 1, 1, 1, 1, 1, 1, 1, 1]]}
  - name: too-much-to-keep
    batch.waves: [[20, 20, 20]]
  - name: too-much-beside
    batch: {waves: [[1]], staggered: [[64, 1]]}
  - name: nothing-to-cut
    batch: {waves: [[2, 3]], chunked_prefill: true}
  - name: never-found-again
    batch: {waves: [[8]], prefix_caching: true}
  - name: cache-off
    enable_prefix_caching: false
    batch.prefix_caching: true
    kv_cache_memory_bytes: 4000000
  - name: healthy
    batch.waves: [[1], [64]]
"""


@pytest.fixture(scope="module")
def unfit(settings: Settings) -> tuple[MatrixProblem, ...]:
    return refusal(UNFIT, settings).problems


@pytest.mark.parametrize(
    ("cell", "word", "said", "advice"),
    [
        ("too-long", "[[1], [509]]", "a prompt of 509 tokens and 4 answers are more than the model's", "Shorten"),
        ("too-many-tokens", "[[40, 25]]", "65 tokens are to be one step, and a batch holds 64", "Split the wave"),
        ("too-many-requests", "1, 1, 1, 1", "9 requests are to run at once, and at most 8 do", "max_num_seqs"),
        ("too-much-to-keep", "[[20, 20, 20]]", "the KV cache has to hold 384 tokens at once", "kv_cache_memory_bytes"),
        ("too-much-beside", "[[64, 1]]", "65 tokens are to be one step", "Split the wave"),
        ("nothing-to-cut", "chunked_prefill", "no wave is larger than a batch (64)", "lower max_num_batched_tokens"),
        ("never-found-again", "prefix_caching: true}", "no prompt is longer than a block", "Write a longer prompt"),
        ("cache-off", "enable_prefix_caching", "batch.prefix_caching is true and enable_prefix_caching is", "Remove"),
    ],
)  # fmt: skip
def test_requests_that_cannot_run_are_shown_at_the_line_that_asks_for_them(
    cell: str, word: str, said: str, advice: str, unfit: tuple[MatrixProblem, ...]
) -> None:
    (problem,) = (
        problem for problem in unfit if problem.message.startswith(f"cell {cell}:") and said in problem.message
    )
    assert problem.place is not None
    assert problem.place.line == line_of(UNFIT, word)
    assert advice in str(problem.hint)


def test_requests_that_can_run_are_not_refused(unfit: tuple[MatrixProblem, ...]) -> None:
    assert {problem.message.split()[1].rstrip(":") for problem in unfit} == {
        "too-long", "too-many-tokens", "too-many-requests", "too-much-to-keep", "too-much-beside", "nothing-to-cut",
        "never-found-again", "cache-off",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("checks", "taps"),
    [(("audit",), False), (("compile",), False), (("residual",), True), (("outputs",), True)],
)
def test_the_engine_is_told_whether_the_residual_is_wanted(
    checks: tuple[str, ...], taps: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Asked(Exception):
        pass

    def ask(settings: Settings, command: str, request: str, env: dict[str, str] | None = None) -> str:
        asked.append(AuditRequest.model_validate_json(request))
        raise Asked

    cell = Cell("c1", "cell", {"model": "tiny:llama"}, (Verdict.PASS,), tuple(map(Check, checks)), ("matrix",))
    monkeypatch.setattr(questions, "_ask", ask)
    with pytest.raises(Asked):
        questions.audit(settings, [cell])
    assert [cell.taps for cell in asked[0].cells] == [taps]


# --- and what is right -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quickstart(settings: Settings) -> Plan:
    return plan(parse(QUICKSTART.read_text()), settings)


def test_quickstart_is_planned(quickstart: Plan, settings: Settings) -> None:
    assert [planned.cell.name for planned in quickstart.cells] == [
        "replicated",
        "sp-full-graph",
        "sp-piecewise-asked",
        "sp-guard-removed",
    ]
    assert all(planned.audited.problems == [] for planned in quickstart.cells)
    assert not settings.artifacts_dir.exists()


def test_requests_are_the_same_with_sp_and_without(quickstart: Plan) -> None:
    """So that the cells share the arms that they are compared with."""
    first, *others = (planned.batch for planned in quickstart.cells)
    assert all(other == first for other in others)
    assert [sum(wave) for wave in first.waves][:4] == [1, 2, 3, 8192]


def test_one_reference_serves_cells_with_the_same_requests(quickstart: Plan) -> None:
    found = [
        needs(planned.cell, planned.audited.shape, planned.batch)
        for planned in quickstart.cells[:2]
        if planned.audited.shape
    ]
    keys = {need.reference.key(quickstart.environment) for need in found if need.reference}
    assert (len(found), len(keys)) == (2, 1)
    assert found[0].probe is not None
    assert found[1].replicated is not None
    assert found[0].probe.key(quickstart.environment) == found[1].replicated.key(quickstart.environment)


def test_equal_effective_settings_are_found(quickstart: Plan) -> None:
    shared = {p.cell.name: p.duplicate_of.name for p in quickstart.cells if p.duplicate_of}
    assert shared == {"sp-piecewise-asked": "sp-full-graph"}


def test_override_is_shown_with_its_reason_and_the_removed_guard_without(quickstart: Plan) -> None:
    written: dict[str, Any] = {
        planned.cell.name: [(change.key, change.reason) for change in planned.audited.changes if change.written]
        for planned in quickstart.cells
    }
    ((key, reason),) = written.pop("sp-piecewise-asked")
    assert key == "compilation_config.splitting_ops"
    assert "requires full-graph compilation" in reason
    assert not any(written.values())
    removed = quickstart.cells[-1].audited.patches
    assert removed == {Patch.FULL_GRAPH_SP: PatchState.REMOVED, Patch.FALLBACK_FAST_PATH: PatchState.NATIVE}
