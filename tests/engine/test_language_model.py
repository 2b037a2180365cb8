"""The adapter between lm_eval and an engine, held against lm_eval's own adapter for ``transformers``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from workers.accuracy import compare
from workers.engine import models, tasks
from workers.engine.byte_tokenizer import SIZE
from workers.engine.evaluate import run, scores
from workers.protocol import Evaluation

from .transformers_engine import TransformersEngine

SHIPPED = str(Path(__file__).parents[2] / "deploy" / "tasks")
LIMIT = 8
BOTH = ("shardproof_sums", "shardproof_repeat")


@pytest.fixture(scope="module")
def tiny(models_dir: Path) -> str:
    return models.locate("tiny:llama", models_dir)


@pytest.fixture(scope="module")
def reference(tiny: str) -> Any:
    """lm_eval's own adapter, with the model in memory."""
    tasks.stay_offline()
    # Threads that wait for each other take longest where other tests run beside this one.
    torch.set_num_threads(1)
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=tiny, device="cpu", dtype="float32", batch_size=4)


def adapter(reference: Any, max_model_len: int = 512) -> Any:
    from workers.engine.language_model import EngineLM

    return EngineLM(TransformersEngine(reference.model, max_model_len), reference.tokenizer)  # type: ignore[arg-type]


def ask(*arguments: Any) -> Any:
    return SimpleNamespace(args=arguments)


# --- the tokenizer of tiny models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "a b", "  two\n\n", "Größe – 三 🙂", "".join(map(chr, range(1, 300)))], ids=len)
def test_every_byte_is_a_token(text: str, reference: Any) -> None:
    ids = reference.tokenizer.encode(text)
    assert ids == [byte + 2 for byte in text.encode()]
    assert reference.tokenizer.decode(ids) == text
    assert (reference.tokenizer.bos_token_id, reference.tokenizer.eos_token_id, SIZE) == (0, 1, 258)


# --- requests --------------------------------------------------------------------------------------------------------

PAIRS = [
    ("2 + 2 =", " 4"),
    ("2 + 2 = ", "4"),
    ("", "no context"),
    ("a", "b"),
    ("<s>x", "y"),
    ("é", "é 🙂"),
    ("x" * 90, "y" * 9),
]


def test_continuations_score_what_they_score_elsewhere(reference: Any) -> None:
    requests = [ask(*pair) for pair in PAIRS]
    found, expected = adapter(reference).loglikelihood(requests), reference.loglikelihood(requests)
    for (value, greedy), (wanted, greedily) in zip(found, expected, strict=True):
        assert value == pytest.approx(wanted, abs=1e-3)
        assert greedy is bool(greedily)


def test_the_likeliest_continuation_is_known_as_such(reference: Any) -> None:
    engine = adapter(reference)
    ids = engine.tok_encode("abc")
    likeliest = engine._answers([engine._generation("abc", {"max_gen_toks": 2})])[0].outputs[0].token_ids
    ((_, greedy),) = engine._loglikelihood_tokens([(None, ids, likeliest)])
    ((_, other),) = engine._loglikelihood_tokens([(None, ids, [likeliest[0], likeliest[1] ^ 1])])
    assert (greedy, other) == (True, False)


@pytest.mark.parametrize("length", [3, 30, 200])
def test_whole_texts_score_what_they_score_elsewhere(length: int, reference: Any) -> None:
    requests = [ask("abcdefghij" * (length // 10) + "xyz")]
    assert adapter(reference).loglikelihood_rolling(requests) == pytest.approx(
        reference.loglikelihood_rolling(requests), abs=1e-2
    )


def test_a_long_text_is_scored_in_windows_each_token_once(reference: Any) -> None:
    engine = adapter(reference, max_model_len=16)
    text = "abcdefghijklmnopqrstuvwxyz0123456789"
    (total,) = engine.loglikelihood_rolling([ask(text)])
    assert max(map(len, engine._engine.prompts)) <= 15
    assert len(engine._engine.prompts) > 1
    assert total == pytest.approx(len(text) * -6.5, rel=0.5)


@pytest.mark.parametrize("until", [["\n"], ["\t", "a"], [], ["no such text"]], ids=str)
def test_answers_are_what_they_are_elsewhere(until: list[str], reference: Any) -> None:
    asked = {"until": until, "max_gen_toks": 24, "do_sample": False}
    requests = [ask(f"words: {word}\nagain:", dict(asked)) for word in ("amber", "basket", "cedar")]
    assert adapter(reference).generate_until(requests) == reference.generate_until(requests)


def test_an_answer_ends_at_its_stop_text_and_runs_no_further(reference: Any) -> None:
    engine = adapter(reference)
    whole = engine.generate_until([ask("words:", {"until": [], "max_gen_toks": 24})])[0]
    stop = whole[6:8]
    (found,) = engine.generate_until([ask("words:", {"until": [stop], "max_gen_toks": 24})])
    assert found == whole[: whole.index(stop)]
    assert len(engine._engine.aborted) == 1


def test_a_request_too_long_loses_its_beginning_and_is_counted(reference: Any) -> None:
    engine = adapter(reference, max_model_len=16)
    engine.loglikelihood([ask("0123456789abcdef", "XYZ"), ask("short", "!")])
    assert bytes(token - 2 for token in engine._engine.prompts[0]) == b"456789abcdefXYZ"
    engine.generate_until([ask("0123456789abcdef", {"max_gen_toks": 4})])
    assert bytes(token - 2 for token in engine._engine.prompts[2]) == b"456789abcdef"
    assert engine.truncated == 2


def test_a_generation_setting_that_is_not_known_is_refused(reference: Any) -> None:
    with pytest.raises(ValueError, match="not known here: num_beams"):
        adapter(reference).generate_until([ask("x", {"num_beams": 4})])


# --- whole evaluations -----------------------------------------------------------------------------------------------


def evaluated(
    model: Any, names: tuple[str, ...] = BOTH[:1], folder: str = SHIPPED
) -> tuple[dict[str, Any], dict[str, Any]]:
    asked = Evaluation(tasks=list(names), limit=LIMIT, folders=[folder])
    found = run(model, tasks.load(asked), asked)
    counted = {"not_finite": getattr(model, "not_finite", 0), "truncated": getattr(model, "truncated", 0)}
    return found, scores(found, asked) | counted


@pytest.fixture(scope="module")
def healthy(reference: Any) -> dict[str, Any]:
    return evaluated(adapter(reference))[1]


def test_an_evaluation_scores_what_lm_eval_s_own_adapter_scores(reference: Any) -> None:
    theirs, counted = evaluated(reference, BOTH)
    healthy = evaluated(adapter(reference), BOTH)[1]
    assert [item | {"stderr": None} for item in healthy["tasks"]] == [
        item | {"stderr": None} for item in counted["tasks"]
    ]
    named = {(item["task"], item["metric"]): item for item in healthy["tasks"]}
    assert set(named) == {
        ("shardproof_repeat", "exact_match"),
        ("shardproof_sums", "acc"),
        ("shardproof_sums", "acc_norm"),
    }
    accuracy = named["shardproof_sums", "acc"]
    assert accuracy["stderr"] == pytest.approx(theirs["results"]["shardproof_sums"]["acc_stderr,none"])
    assert 0 < accuracy["value"] < 1, "scores that are all alike would hide a mistake"
    assert accuracy["samples"] == len(accuracy["scores"]) == LIMIT


def test_the_same_evaluation_twice_differs_by_nothing(reference: Any, healthy: dict[str, Any]) -> None:
    found = compare(evaluated(adapter(reference))[1], healthy)
    assert (found.missing, [(item.difference, item.changed) for item in found.tasks]) == ([], [(0, 0)] * 2)
    assert found.not_finite == 0


def test_a_model_that_is_broken_scores_something_else(tiny: str, reference: Any, healthy: dict[str, Any]) -> None:
    """As SP would break it: one rank's half of every hidden state is lost."""
    from lm_eval.models.huggingface import HFLM

    broken = HFLM(pretrained=tiny, device="cpu", dtype="float32", batch_size=4)
    broken.model.lm_head.weight.data[:, :64] = 0
    found = compare(evaluated(adapter(broken))[1], healthy)
    assert found.missing == []
    assert any(item.changed for item in found.tasks)


def test_a_model_that_yields_no_numbers_is_counted(tiny: str, healthy: dict[str, Any]) -> None:
    from lm_eval.models.huggingface import HFLM

    broken = HFLM(pretrained=tiny, device="cpu", dtype="float32", batch_size=4)
    broken.model.lm_head.weight.data[:] = float("nan")
    found = compare(evaluated(adapter(broken))[1], healthy)
    assert found.not_finite > LIMIT


def test_another_answer_key_is_another_task(tmp_path: Path, reference: Any, healthy: dict[str, Any]) -> None:
    """The negative control: the key is moved by one, so accuracy changes, and the samples are known to be others."""
    import json

    for path in Path(SHIPPED).iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    key = tmp_path / "shardproof_sums.jsonl"
    moved = [json.loads(line) for line in key.read_text().splitlines()]
    key.write_text("".join(json.dumps(doc | {"answer": (doc["answer"] + 1) % 4}) + "\n" for doc in moved))
    wrong = evaluated(adapter(reference), folder=str(tmp_path))[1]
    values = [{item["metric"]: item["value"] for item in found["tasks"]} for found in (wrong, healthy)]
    assert values[0]["acc"] != values[1]["acc"]
    assert any("different samples" in gap for gap in compare(wrong, healthy).missing)
    same_samples = [item | {"inputs": "taken for the same"} for item in wrong["tasks"]]
    forced = compare(
        wrong | {"tasks": same_samples},
        healthy | {"tasks": [item | {"inputs": "taken for the same"} for item in healthy["tasks"]]},
    )
    assert {item.metric: bool(item.changed) for item in forced.tasks}["acc"] is True
