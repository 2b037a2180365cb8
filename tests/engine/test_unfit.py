"""What the engine would die of as it starts is told at audit, on real configurations and files.

A checkpoint that is not whole, a layout that does not fit the model, a version without what the taps hang on.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from workers.engine import internals
from workers.engine.models import locate
from workers.probes.audit import audit
from workers.probes.checkpoint import INDEX, CheckpointError, check
from workers.protocol import AuditCell, AuditedCell, AuditRequest, Problem

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_patches")]

KINDS = ("llama", "qwen3", "qwen3_moe")
SP = {
    "compilation_config.pass_config.enable_sp": True,
    "compilation_config.pass_config.sp_min_token_num": 8,
    "tensor_parallel_size": 2,
}

Ask = Callable[..., AuditedCell]


@pytest.fixture
def ask(models_dir: Path) -> Ask:
    def ask(engine: dict[str, Any], taps: bool = True) -> AuditedCell:
        cell = AuditCell(id="cell", engine={"model": "tiny:llama", "dtype": "float32"} | engine, patches={}, taps=taps)
        return audit(AuditRequest(cells=[cell], models_dir=str(models_dir))).cells[0]

    return ask


def only(cell: AuditedCell) -> Problem:
    (problem,) = cell.problems
    assert (cell.effective, cell.shape) == (None, None)
    return problem


# --- checkpoints -----------------------------------------------------------------------------------------------------


def saved(model: str, folder: Path, models_dir: Path, **options: Any) -> Path:
    """``model`` as ``transformers`` itself writes it from what it has read: a folder as anybody may have it."""
    import transformers

    read = transformers.AutoModelForCausalLM.from_pretrained(locate(model, models_dir))
    read.save_pretrained(folder, **options)
    return folder


def drop(folder: Path, names: set[str]) -> None:
    """Take tensors out of the files and out of the index."""
    for file in folder.glob("*.safetensors"):
        kept = {name: tensor for name, tensor in load_file(file).items() if name not in names}
        save_file(kept, file, metadata={"format": "pt"})
    if (folder / INDEX).exists():
        index = json.loads((folder / INDEX).read_text())
        index["weight_map"] = {name: file for name, file in index["weight_map"].items() if name not in names}
        (folder / INDEX).write_text(json.dumps(index))


@pytest.fixture(params=["one file", "shards"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path, models_dir: Path) -> Path:
    options = {"max_shard_size": "300KB"} if request.param == "shards" else {}
    folder = saved("tiny:llama", tmp_path / "checkpoint", models_dir, **options)
    assert (folder / INDEX).exists() is (request.param == "shards")
    return folder


def test_a_folder_with_a_whole_checkpoint_is_a_model(checkpoint: Path, ask: Ask) -> None:
    cell = ask(SP | {"model": str(checkpoint)})
    assert cell.problems == []
    assert cell.shape is not None
    assert (cell.shape.layers, cell.shape.hidden_size, cell.shape.sequence_parallelism) == (2, 128, True)


def held_against_its_class(folder: Path) -> None:
    """The check by itself: vLLM starts a process for each class of models that it has not met before."""
    import transformers

    check(str(folder), transformers.AutoConfig.from_pretrained(folder))


@pytest.mark.parametrize("kind", KINDS)
def test_no_whole_checkpoint_is_refused(kind: str, tmp_path: Path, models_dir: Path) -> None:
    held_against_its_class(Path(locate(f"tiny:{kind}", models_dir)))
    held_against_its_class(saved(f"tiny:{kind}", tmp_path / "saved", models_dir))


def test_tied_weights_are_stored_once(tmp_path: Path, ask: Ask) -> None:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    model: Any = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert ask({"model": str(tmp_path)}).problems == []
    drop(tmp_path, {"model.embed_tokens.weight"})
    assert "lacks model.embed_tokens.weight" in only(ask({"model": str(tmp_path)})).message


def test_the_first_missing_weights_are_named(checkpoint: Path, ask: Ask) -> None:
    drop(checkpoint, {"model.layers.1.mlp.up_proj.weight"})
    problem = only(ask({"model": str(checkpoint)}))
    assert problem.key == "model"
    assert problem.message == f"the checkpoint {checkpoint} lacks model.layers.1.mlp.up_proj.weight"
    assert "load_format: dummy" in str(problem.hint)
    drop(checkpoint, {f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkvo"})
    message = only(ask({"model": str(checkpoint)})).message
    assert "lacks model.layers.0.self_attn.q_proj.weight, model.layers.0.self_attn.k_proj.weight, " in message
    assert message.endswith(" and 2 more")


def test_missing_experts_go_by_the_names_they_have_in_the_files(tmp_path: Path, models_dir: Path) -> None:
    folder = saved("tiny:qwen3_moe", tmp_path / "saved", models_dir)
    name = "model.layers.1.mlp.experts.2.up_proj.weight"
    drop(folder, {name})
    with pytest.raises(CheckpointError, match=re.escape(f"lacks {name}")):
        held_against_its_class(folder)


def test_a_shard_that_is_not_there_is_named(tmp_path: Path, models_dir: Path, ask: Ask) -> None:
    folder = saved("tiny:llama", tmp_path / "saved", models_dir, max_shard_size="300KB")
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    assert f"lacks {shard.name}, which {INDEX} lists" in only(ask({"model": str(folder)})).message


def test_a_file_that_was_cut_off_is_named(checkpoint: Path, ask: Ask) -> None:
    file = sorted(checkpoint.glob("*.safetensors"))[0]
    file.write_bytes(file.read_bytes()[:-1000])
    assert f"the weights in {file} cannot be read" in only(ask({"model": str(checkpoint)})).message


def test_an_index_that_is_none_is_named(tmp_path: Path, models_dir: Path, ask: Ask) -> None:
    folder = saved("tiny:llama", tmp_path / "saved", models_dir, max_shard_size="300KB")
    (folder / INDEX).write_text("[]")
    assert "is not an index of weights" in only(ask({"model": str(folder)})).message


def test_weights_that_nobody_reads_may_be_missing(checkpoint: Path, ask: Ask) -> None:
    drop(checkpoint, {"model.norm.weight"})
    assert ask({"model": str(checkpoint)}).problems
    assert ask({"model": str(checkpoint), "load_format": "dummy"}).problems == []


def test_a_checkpoint_with_names_of_its_own_is_the_engines_to_read(checkpoint: Path, ask: Ask) -> None:
    for file in checkpoint.glob("*.safetensors"):
        save_file({f"own.{name}": tensor for name, tensor in load_file(file).items()}, file)
    assert ask({"model": str(checkpoint)}).problems == []


def test_more_layers_than_the_files_hold(checkpoint: Path, ask: Ask) -> None:
    found = ask({"model": str(checkpoint), "hf_overrides": {"num_hidden_layers": 3}})
    assert "lacks model.layers.2." in only(found).message


def test_a_copy_without_its_config_is_no_model(checkpoint: Path, tmp_path: Path, ask: Ask) -> None:
    shutil.copytree(checkpoint, tmp_path / "copy", ignore=shutil.ignore_patterns("config.json"))
    assert only(ask({"model": str(tmp_path / "copy")})).key == "model"


# --- layouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "key", "said"),
    [
        (
            {"pipeline_parallel_size": 3},
            "pipeline_parallel_size",
            "3 pipeline stages for 2 layers: a stage would have none",
        ),
        (
            {"model": "tiny:llama?heads=4&kv_heads=2", "tensor_parallel_size": 3},
            "tensor_parallel_size",
            "Total number of attention heads (4) must be divisible by tensor parallel size (3)",
        ),
        (
            {"model": "tiny:llama?heads=6&kv_heads=3&hidden=192", "tensor_parallel_size": 2},
            "tensor_parallel_size",
            "the model's num_key_value_heads is 3, which 2 ranks cannot share equally",
        ),
        (
            {"model": "tiny:llama?intermediate=130", "tensor_parallel_size": 4},
            "tensor_parallel_size",
            "the model's intermediate_size is 130, which 4 ranks cannot share equally",
        ),
    ],
)
def test_a_layout_that_does_not_divide_the_model_is_refused(
    engine: dict[str, Any], key: str, said: str, ask: Ask
) -> None:
    problem = only(ask(engine))
    assert problem.key == key
    assert said in problem.message


@pytest.mark.parametrize(
    "engine",
    [
        {"pipeline_parallel_size": 2},
        # Two heads of keys and values on four ranks: each is there twice.
        {"model": "tiny:llama?heads=4&kv_heads=2", "tensor_parallel_size": 4},
        {"model": "tiny:llama?heads=6&kv_heads=2&hidden=192", "tensor_parallel_size": 2},
        {"model": "tiny:llama?intermediate=132", "tensor_parallel_size": 4},
    ],
)
def test_a_layout_that_divides_the_model_is_not_refused(engine: dict[str, Any], ask: Ask) -> None:
    assert ask(engine).problems == []


# --- taps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", internals.SITES)
def test_a_version_without_what_the_taps_hang_on_is_refused(
    path: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = path.replace(":", ":moved.")
    monkeypatch.setattr(internals, "SITES", internals.SITES | {gone: internals.SITES[path]})
    problem = only(ask(SP))
    assert "the residual cannot be recorded" in problem.message
    assert f"{gone} is not there (needed to {internals.SITES[path]})" in problem.message
    assert "leave out the checks residual and outputs" in str(problem.hint)


def test_this_version_has_all_that_the_taps_hang_on(ask: Ask) -> None:
    assert internals.missing_sites() == []
    assert torch.ops.vllm_ir.fused_add_rms_norm.default is internals.resolve(
        "torch:ops.vllm_ir.fused_add_rms_norm.default", "see that the name is the one the taps look for"
    )


def test_only_a_compiled_engine_that_is_recorded_hangs_on_it(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "SITES", {"vllm:no_such_name": "record"})
    assert ask(SP).problems
    assert ask(SP, taps=False).problems == []
    assert ask({"enforce_eager": True}).problems == []


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_the_shape_says_how_steps_are_put_together(ask: Ask) -> None:
    shape = ask(SP).shape
    assert shape is not None
    assert (shape.sp_min_token_num, shape.compile_ranges) == (8, [(1, 7), (8, 8192)])
    assert (shape.max_num_batched_tokens, shape.max_num_seqs, shape.max_model_len) == (8192, 512, 512)
    assert (shape.chunked_prefill, shape.block_size, shape.async_scheduling) == (True, 128, False)


def test_without_sp_there_is_no_threshold(ask: Ask) -> None:
    shape = ask(SP | {"compilation_config.pass_config.enable_sp": False}).shape
    assert shape is not None
    assert (shape.sp_min_token_num, shape.compile_ranges) == (None, [(1, 8192)])


BLOCK = 128
TOKEN = 2 * 32 * 4
"""Bytes of a key and a value of one head in float32."""


@pytest.mark.parametrize(
    ("engine", "token_bytes"),
    [
        # The reference has both layers and both heads on one rank.
        ({"tensor_parallel_size": 2}, 2 * 2 * TOKEN),
        ({"tensor_parallel_size": 1}, 2 * 2 * TOKEN),
        # And it has them in float32.
        ({"tensor_parallel_size": 2, "dtype": "bfloat16"}, 2 * 2 * TOKEN),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, 2 * 2 * TOKEN),
    ],
)
def test_the_smallest_cache_of_the_arms_counts(engine: dict[str, Any], token_bytes: int, ask: Ask) -> None:
    blocks = 10
    spare = token_bytes * BLOCK // 2
    shape = ask({"kv_cache_memory_bytes": blocks * token_bytes * BLOCK + spare} | engine).shape
    assert shape is not None
    assert shape.kv_tokens == (blocks - 1) * BLOCK, "one block is the engine's own"
