"""Full-graph SP: our guards do what vLLM's own do, can be taken away, and leave nothing behind."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import vllm.config.compilation as config_compilation
import vllm.v1.worker.gpu_model_runner as gpu_model_runner
import vllm.v1.worker.gpu_worker as gpu_worker
import vllm.v1.worker.utils as worker_utils
from vllm.compilation.passes.fusion import sequence_parallelism
from vllm.compilation.passes.fusion.sequence_parallelism import SequenceParallelismPass
from vllm.config import CompilationConfig, CompilationMode, CUDAGraphMode
from vllm.config.compilation import PassConfig
from vllm.config.utils import Range

from workers.engine.internals import TargetMissing, resolve
from workers.patches import establish, full_graph_sp
from workers.patches.full_graph_sp import HELPER_NAME, impose
from workers.probes import guards
from workers.probes.guards import ASYNC_TP_PASS, ATTENTION_OP, check_guards, piecewise_config
from workers.protocol import Patch, PatchMode, PatchState

RULE = "set_splitting_ops_for_v1"
HELPER_MODULES = (worker_utils, gpu_model_runner, gpu_worker)
ALL_ATTENTION = list(CompilationConfig._attention_ops)
OTHERS = ["vllm::moe_forward", "silly::attention"]

Case = tuple[Any, ...]
CASES: list[Case] = list(
    itertools.product(
        (None, [], [ATTENTION_OP], ALL_ATTENTION, OTHERS),
        CUDAGraphMode,
        (False, True),
        itertools.product((False, True), repeat=2),
        (False, True),
        (CompilationMode.VLLM_COMPILE, CompilationMode.DYNAMO_TRACE_ONCE, CompilationMode.NONE),
    )
)
"""splitting_ops, cudagraph_mode, use_inductor_graph_partition, (enable_sp, fuse_gemm_comms), fuse_attn_quant, mode."""


def ask(mode: PatchMode) -> PatchState:
    return full_graph_sp.establish(mode)


@pytest.fixture(autouse=True)
def _quiet_and_native(native_patches: None) -> Iterator[None]:
    # What the rule says is of no interest here, and it is said 2400 times.
    logger = logging.getLogger("vllm")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def build(case: Case) -> Any:
    ops, cudagraphs, partition, (enable_sp, fuse_gemm_comms), fuse_attn_quant, mode = case
    passes = PassConfig(enable_sp=enable_sp, fuse_gemm_comms=fuse_gemm_comms)
    # Set after construction: on this platform the constructor turns it off.
    passes.fuse_attn_quant = fuse_attn_quant
    return piecewise_config(
        splitting_ops=None if ops is None else list(ops),
        cudagraph_mode=cudagraphs,
        use_inductor_graph_partition=partition,
        pass_config=passes,
        mode=mode,
    )


def resolved(case: Case, backend: str = "naive", data_parallel_size: int = 1) -> Any:
    """What the rule makes of ``case``: settings, or the type of what it raises."""
    config = build(case)
    try:
        config.set_splitting_ops_for_v1(all2all_backend=backend, data_parallel_size=data_parallel_size)
    except Exception as error:
        return type(error)
    passes = config.pass_config
    flags = (passes.enable_sp, passes.fuse_gemm_comms, passes.fuse_attn_quant, passes.fuse_rope_kvcache)
    return config.splitting_ops, config.cudagraph_mode, flags


def all_resolved() -> list[Any]:
    return [resolved(case) for case in CASES]


def wants_full_graph(case: Case) -> bool:
    _, _, partition, passes, _, mode = case
    return any(passes) and not partition and mode is CompilationMode.VLLM_COMPILE


# --- the config rule -----------------------------------------------------------------------------------------------


def test_our_rule_gives_what_the_native_one_gives() -> None:
    native = all_resolved()
    assert impose() is PatchState.APPLIED
    different = [(case, n, o) for case, n, o in zip(CASES, native, all_resolved(), strict=True) if n != o]
    assert different == []


def test_the_cases_make_the_rule_do_all_that_it_can() -> None:
    native = all_resolved()
    assert AssertionError in native
    rewritten = [n for case, n in zip(CASES, native, strict=True) if case[0] and isinstance(n, tuple) and not n[0]]
    assert {cudagraphs for _, cudagraphs, _ in rewritten} >= {CUDAGraphMode.NONE, CUDAGraphMode.FULL}
    assert any(n[0] == [ATTENTION_OP] for n in native if isinstance(n, tuple)), "and leave alone what it can"


def test_our_rule_agrees_where_another_rule_follows_it() -> None:
    def both() -> list[Any]:
        return [resolved(case, "deepep_high_throughput", 2) for case in CASES]

    native = both()
    impose()
    assert both() == native
    assert native != all_resolved(), "the other rule did change something"


def test_off_takes_the_rule_away_and_nothing_else() -> None:
    native = all_resolved()
    ask(PatchMode.OFF)
    for case, before, after in zip(CASES, native, all_resolved(), strict=True):
        if before == after:
            continue
        assert wants_full_graph(case), case
        assert before[0] == []
        assert after[0], "the graph is split"
    changed = [case for case, b, a in zip(CASES, native, all_resolved(), strict=True) if b != a]
    assert {tuple(case[0] or ()) for case in changed} == {(), (ATTENTION_OP,), tuple(ALL_ATTENTION), tuple(OTHERS)}
    assert {case[1] for case in changed} == set(CUDAGraphMode)
    assert {case[3] for case in changed} == {(True, False), (False, True), (True, True)}


def test_off_shows_sp_to_the_configuration_as_it_was() -> None:
    ask(PatchMode.OFF)
    _, _, flags = resolved(
        ([ATTENTION_OP], CUDAGraphMode.NONE, False, (True, True), False, CompilationMode.VLLM_COMPILE)
    )
    assert flags[:2] == (True, True)


def test_removed_rule_gives_the_flags_back_when_the_original_raises() -> None:
    ask(PatchMode.OFF)
    config = build((ALL_ATTENTION, CUDAGraphMode.NONE, False, (True, True), True, CompilationMode.VLLM_COMPILE))
    with pytest.raises(AssertionError):
        config.set_splitting_ops_for_v1(all2all_backend="naive", data_parallel_size=1)
    assert (config.pass_config.enable_sp, config.pass_config.fuse_gemm_comms) == (True, True)


# --- passes and runner ---------------------------------------------------------------------------------------------

GRAPHS = {
    "split": SimpleNamespace(splitting_ops=[ATTENTION_OP], use_inductor_graph_partition=False),
    "whole": SimpleNamespace(splitting_ops=[], use_inductor_graph_partition=False),
    "undecided": SimpleNamespace(splitting_ops=None, use_inductor_graph_partition=False),
    "partitioned": SimpleNamespace(splitting_ops=[ATTENTION_OP], use_inductor_graph_partition=True),
}


def async_tp_pass() -> Any:
    try:
        return resolve(ASYNC_TP_PASS, "test it")
    except TargetMissing as missing:
        pytest.skip(f"no async TP on this platform: {missing}")


def applicability(pass_class: Any, graph: str) -> list[Any]:
    """What the pass says of every range and threshold, or ``AssertionError``."""
    answers: list[Any] = []
    for start, threshold in itertools.product((1, 8, 64), (None, 1, 8)):
        instance = object.__new__(pass_class)
        instance.compilation_config = GRAPHS[graph]
        instance.min_token_num = threshold
        answers.append(outcome(lambda: instance.is_applicable_for_range(Range(start=start, end=128))))  # noqa: B023
        assert instance.compilation_config is GRAPHS[graph]
    return answers


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except AssertionError:
        return AssertionError


def helper_answers(graph: str, module: Any = worker_utils) -> list[Any]:
    """What the runner's helper says for SP off and on, one rank and two, token counts that divide and not."""
    answers: list[Any] = []
    for enable_sp, ranks, tokens in itertools.product((False, True), (1, 2), (7, 8)):
        passes = SimpleNamespace(enable_sp=enable_sp)
        config = SimpleNamespace(
            compilation_config=SimpleNamespace(**vars(GRAPHS[graph]), pass_config=passes),
            parallel_config=SimpleNamespace(tensor_parallel_size=ranks),
        )
        answers.append(outcome(lambda: getattr(module, HELPER_NAME)(config, tokens)))  # noqa: B023
    return answers


def pass_class(name: str) -> Any:
    return SequenceParallelismPass if name == "sp" else async_tp_pass()


@pytest.mark.parametrize("name", ["sp", "async-tp"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_our_pass_guard_answers_as_the_native_one(name: str, graph: str) -> None:
    native = applicability(pass_class(name), graph)
    assert (native == [AssertionError] * 9) is (graph == "split")
    assert True in native or graph == "split"
    impose()
    assert applicability(pass_class(name), graph) == native


@pytest.mark.parametrize("name", ["sp", "async-tp"])
def test_pass_with_its_guard_off_takes_a_split_graph(name: str) -> None:
    whole = applicability(pass_class(name), "whole")
    ask(PatchMode.OFF)
    assert applicability(pass_class(name), "split") == whole
    assert AssertionError not in whole


@pytest.mark.parametrize("graph", GRAPHS)
def test_our_helper_guard_answers_as_the_native_one(graph: str) -> None:
    native = helper_answers(graph)
    assert native[-1] is (AssertionError if graph == "split" else True)
    assert native[:6] == [False] * 6, "SP off, or one rank: nothing is scattered and nothing is asserted"
    impose()
    assert helper_answers(graph) == native


def test_helper_with_its_guard_off_takes_a_split_graph_but_no_odd_token_count() -> None:
    whole = helper_answers("whole")
    ask(PatchMode.OFF)
    assert helper_answers("split") == whole
    assert whole[-2:] == [AssertionError, True]


# --- states --------------------------------------------------------------------------------------------------------


def originals() -> list[Any]:
    owners: list[tuple[Any, str]] = [
        (CompilationConfig, RULE),
        (SequenceParallelismPass, "is_applicable_for_range"),
        *((module, HELPER_NAME) for module in HELPER_MODULES),
    ]
    with contextlib.suppress(TargetMissing):
        owners.append((resolve(ASYNC_TP_PASS, "test it"), "is_applicable_for_range"))
    return [getattr(owner, name) for owner, name in owners]


def test_every_binding_is_changed_and_given_back() -> None:
    native = originals()
    for name in ("off", "ours"):
        STATES[name][0]()
        assert not any(now is before for now, before in zip(originals(), native, strict=True))
        assert len({getattr(module, HELPER_NAME) for module in HELPER_MODULES}) == 1
        ask(PatchMode.NATIVE)
        assert all(now is before for now, before in zip(originals(), native, strict=True))


@pytest.mark.parametrize("module", HELPER_MODULES[1:], ids=lambda module: module.__name__)
def test_module_imported_while_the_guard_is_off_gets_it_back(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    native = getattr(worker_utils, HELPER_NAME)
    with monkeypatch.context() as absent:
        absent.delitem(sys.modules, module.__name__)
        ask(PatchMode.OFF)
    monkeypatch.setattr(module, HELPER_NAME, getattr(worker_utils, HELPER_NAME))
    assert getattr(module, HELPER_NAME) is not native
    ask(PatchMode.ON)
    assert getattr(module, HELPER_NAME) is native
    assert helper_answers("split", module)[-1] is AssertionError


STATES: dict[str, tuple[Callable[[], PatchState], PatchState]] = {
    "on": (lambda: ask(PatchMode.ON), PatchState.NATIVE),
    "off": (lambda: ask(PatchMode.OFF), PatchState.REMOVED),
    "native": (lambda: ask(PatchMode.NATIVE), PatchState.NATIVE),
    "ours": (impose, PatchState.APPLIED),
}


@pytest.mark.parametrize("names", list(itertools.product(STATES, repeat=3)), ids="-".join)
def test_any_state_can_follow_any_other(names: tuple[str, ...]) -> None:
    native = originals()
    for name in names:
        bring, found = STATES[name]
        assert bring() is found
    guarded = names[-1] != "off"
    assert [guard.held for guard in check_guards() if guard.held is not None] == [guarded] * len(held_natively())
    untouched = names[-1] in ("on", "native")
    assert [now is before for now, before in zip(originals(), native, strict=True)] == [untouched] * len(native)
    ask(PatchMode.NATIVE)
    assert originals() == native


def held_natively() -> list[Any]:
    return [guard for guard in check_guards() if guard.held is not None]


# --- versions without the guards -----------------------------------------------------------------------------------


def old_rule(config: Any, all2all_backend: str, data_parallel_size: int = 1) -> None:
    if config.splitting_ops is None:
        config.splitting_ops = list(ALL_ATTENTION)


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A version from before full-graph SP: none of the places objects."""

    def old_helper(vllm_config: Any, num_input_tokens: int) -> bool:
        return bool(vllm_config.compilation_config.pass_config.enable_sp)

    monkeypatch.setattr(CompilationConfig, RULE, old_rule)
    monkeypatch.setattr(SequenceParallelismPass, "is_applicable_for_range", lambda self, compile_range: True)
    for module in HELPER_MODULES:
        monkeypatch.setattr(module, HELPER_NAME, old_helper)
    yield originals()
    ask(PatchMode.NATIVE)


def test_on_brings_the_guards_to_a_version_without_them(unguarded: list[Any]) -> None:
    assert ask(PatchMode.NATIVE) is PatchState.ABSENT
    assert ask(PatchMode.ON) is PatchState.APPLIED
    assert all(guard.held for guard in check_guards() if guard.held is not None)
    case = (None, CUDAGraphMode.FULL_AND_PIECEWISE, False, (True, False), False, CompilationMode.VLLM_COMPILE)
    assert resolved(case)[:2] == ([], CUDAGraphMode.FULL)
    off = (None, CUDAGraphMode.FULL_AND_PIECEWISE, False, (False, False), False, CompilationMode.VLLM_COMPILE)
    assert resolved(off)[:2] == (ALL_ATTENTION, CUDAGraphMode.FULL_AND_PIECEWISE), "without SP nothing is rewritten"


def test_on_twice_wraps_once_and_off_gives_the_old_version_back(unguarded: list[Any]) -> None:
    assert [ask(PatchMode.ON), ask(PatchMode.ON)] == [PatchState.APPLIED] * 2
    assert CompilationConfig.set_splitting_ops_for_v1.__wrapped__ is old_rule  # type: ignore[attr-defined]
    assert ask(PatchMode.NATIVE) is PatchState.ABSENT
    assert originals() == unguarded


def remove_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(CompilationConfig, RULE)


def remove_sp_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sequence_parallelism, "SequenceParallelismPass")


def remove_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(worker_utils, HELPER_NAME)


def refuse_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.32: SP's fields are gone."""

    def refuse(**settings: Any) -> Any:
        return PassConfig(enable_sequence_parallelism_of_old=True)  # type: ignore[call-arg]

    monkeypatch.setattr(guards, "piecewise_config", refuse)


@pytest.mark.parametrize("mode", PatchMode)
@pytest.mark.parametrize("remove", [remove_rule, remove_sp_pass, remove_helper, refuse_settings])
def test_missing_target_is_reported_and_not_raised(
    remove: Callable[[pytest.MonkeyPatch], None], mode: PatchMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as moved:
        remove(moved)
        assert establish({Patch.FULL_GRAPH_SP: mode}) == {Patch.FULL_GRAPH_SP: PatchState.TARGET_MISSING}
    assert ask(PatchMode.NATIVE) is PatchState.NATIVE


@pytest.mark.parametrize("mode", PatchMode)
def test_async_tp_may_be_missing(mode: PatchMode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "ASYNC_TP_PASS", "vllm.no_such_module:AsyncTPPass")
    assert ask(mode) is not PatchState.TARGET_MISSING


@pytest.mark.parametrize("mode", PatchMode)
def test_a_version_without_sp_has_no_guards_to_miss(mode: PatchMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings are gone from the class that had them; everything else here is as it was, and is left so."""
    assert guards.has_sequence_parallelism()
    without = dataclasses.make_dataclass("PassConfig", ["fuse_norm_quant"])
    monkeypatch.setattr(config_compilation, "PassConfig", without)
    assert not guards.has_sequence_parallelism()
    rule = getattr(CompilationConfig, RULE)
    assert ask(mode) is PatchState.ABSENT
    assert getattr(CompilationConfig, RULE) is rule


# --- what is said --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    said: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    ear = Ear(logging.WARNING)
    logger = logging.getLogger("vllm")
    logger.setLevel(logging.INFO)
    logger.addHandler(ear)
    try:
        yield said
    finally:
        logger.removeHandler(ear)


def apply_rule() -> None:
    piecewise_config().set_splitting_ops_for_v1(all2all_backend="naive", data_parallel_size=1)


@pytest.mark.parametrize("mode", PatchMode)
def test_detection_says_nothing_and_the_engine_still_speaks(mode: PatchMode) -> None:
    with listening() as said:
        ask(mode)
        assert said == []
    ask(PatchMode.NATIVE)
    with listening() as said:
        apply_rule()
    assert [text for text in said if "requires full-graph compilation" in text], "warning_once is not used up"


def test_engine_says_it_once_by_itself() -> None:
    with listening() as said:
        apply_rule()
        apply_rule()
    assert len(said) == 1, "the control: without forgetting, the second time is silent"


def test_what_was_silenced_before_stays_silenced() -> None:
    logging.disable(logging.ERROR)
    try:
        ask(PatchMode.ON)
        assert logging.root.manager.disable == logging.ERROR
    finally:
        logging.disable(logging.NOTSET)


def test_our_rule_says_why_it_rewrites() -> None:
    impose()
    case = (None, CUDAGraphMode.FULL_AND_PIECEWISE, False, (True, False), False, CompilationMode.VLLM_COMPILE)
    with listening() as said:
        resolved(case)
    assert ["splitting_ops" in text for text in said] == [True, False]
    assert "FULL_AND_PIECEWISE becomes FULL" in said[1]
