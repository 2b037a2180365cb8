"""``tiny:`` models: what a name may say, and that the same name is the same model."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from workers.engine import models
from workers.engine.models import ModelError, TinyModel, build, locate, parse

SMALL = "tiny:llama?layers=1&hidden=32&heads=1&kv_heads=1&vocab=64"


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


# --- names ---------------------------------------------------------------------------------------------------------


def test_bare_name_is_the_default_model() -> None:
    assert parse("tiny:llama") == TinyModel()


def test_every_option_is_read() -> None:
    written = "layers=4&hidden=256&heads=8&kv_heads=2&intermediate=96&vocab=99&positions=64&dtype=float16&seed=3"
    tiny = parse(f"tiny:llama?{written}&rms_norm_eps=1e-6")
    assert tiny == TinyModel("llama", 4, 256, 8, 2, 96, 99, 64, "float16", 1e-6, 3)
    unchanged = [field.name for field in fields(TinyModel) if getattr(tiny, field.name) == field.default]
    assert unchanged == ["kind", "kv_heads"], "an option that is not read would keep its default"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("layer=4", "unknown option 'layer' of tiny:llama; known: dtype, heads, hidden"),
        ("kind=llama", "unknown option 'kind'"),
        ("layers=two", "'layers' of a tiny model takes int, not 'two'"),
        ("layers=", "'layers' of a tiny model takes int, not ''"),
        ("layers=1.5", "'layers' of a tiny model takes int, not '1.5'"),
        ("rms_norm_eps=small", "'rms_norm_eps' of a tiny model takes float, not 'small'"),
        ("layers=0", "'layers' of a tiny model is at least 1, not 0"),
        ("hidden=-128", "'hidden' of a tiny model is at least 1, not -128"),
        ("heads=0", "'heads' of a tiny model is at least 1, not 0"),
        ("kv_heads=0", "'kv_heads' of a tiny model is at least 1, not 0"),
        ("vocab=0", "'vocab' of a tiny model is at least 1"),
        ("positions=0", "'positions' of a tiny model is at least 1"),
        ("intermediate=-1", "'intermediate' and 'seed' of a tiny model are at least 0"),
        ("seed=-1", "'intermediate' and 'seed' of a tiny model are at least 0"),
        ("seed=9223372036854775808", "the seed below 2**63"),
        ("dtype=int8", "'dtype' of a tiny model is one of float32, bfloat16, float16, not 'int8'"),
        ("rms_norm_eps=0", "rms_norm_eps is 0.0; it must be above 0"),
        ("rms_norm_eps=-1e-5", "rms_norm_eps is -1e-05; it must be above 0"),
        ("rms_norm_eps=nan", "rms_norm_eps is nan; it must be above 0"),
        ("rms_norm_eps=inf", "rms_norm_eps is inf; it must be above 0"),
        ("heads=3&kv_heads=3", "hidden=128 does not divide into heads=3"),
        ("kv_heads=3", "heads=4 is not a multiple of kv_heads=3"),
        ("layers=1000&hidden=65536", "at most 2,000,000,000 parameters"),
        (f"hidden={'9' * 3000}", "at most 2,000,000,000 parameters"),
    ],
)
def test_what_makes_no_model_is_refused_and_named(query: str, said: str) -> None:
    with pytest.raises(ModelError) as refused:
        parse(f"tiny:llama?{query}")
    assert said in str(refused.value)


def test_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ModelError, match="no tiny model 'lama'; known: llama"):
        parse("tiny:lama?layers=1")


def test_different_models_have_different_folders() -> None:
    base = TinyModel()
    changed = [
        replace(base, layers=3),
        replace(base, hidden=256),
        replace(base, heads=2, kv_heads=1),
        replace(base, kv_heads=1),
        replace(base, intermediate=96),
        replace(base, vocab=99),
        replace(base, positions=64),
        replace(base, dtype="float16"),
        replace(base, rms_norm_eps=1e-6),
        replace(base, seed=1),
    ]
    assert len({tiny.name for tiny in [base, *changed]}) == len(changed) + 1
    assert base.name == TinyModel().name


# --- folders -------------------------------------------------------------------------------------------------------


def test_other_names_are_left_alone(tmp_path: Path) -> None:
    assert locate("meta-llama/Llama-3", tmp_path) == "meta-llama/Llama-3"
    assert locate(str(tmp_path), tmp_path / "models") == str(tmp_path)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("missing", ["/no/such/folder", "./no-such-folder", "../no-such-folder", "~/no-such-folder"])
def test_path_to_nowhere_is_refused(missing: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no folder .*config\.json, a hub id, or tiny:llama"):
        locate(missing, tmp_path)


def test_same_name_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = locate(SMALL, tmp_path)
    config = json.loads(Path(folder, "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"]) == (1, 32, 64)

    def build_again(tiny: TinyModel, folder: Path) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(models, "build", build_again)
    assert locate(SMALL, tmp_path) == folder
    with pytest.raises(AssertionError, match="built again"):
        locate(f"{SMALL}&seed=1", tmp_path)


def test_same_seed_same_bytes_other_seed_other_weights(tmp_path: Path) -> None:
    tiny = parse(SMALL)
    for name, seed in {"first": 0, "again": 0, "other": 1}.items():
        build(replace(tiny, seed=seed), tmp_path / name)
    first, again, other = (digest(tmp_path / name) for name in ("first", "again", "other"))
    assert first == again
    assert {name for name in first if first[name] != other[name]} == {"model.safetensors"}


@pytest.mark.slow
def test_two_processes_build_one_model(tmp_path: Path) -> None:
    """Both build at once, and the result is what this process builds alone."""
    shared = tmp_path / "shared"
    code = f"from workers.engine.models import locate; print(locate({SMALL!r}, {str(shared)!r}))"
    builders = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [builder.communicate(timeout=120)[0].splitlines()[-1] for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0]
    assert len(set(said)) == 1
    assert [path.name for path in shared.iterdir()] == [parse(SMALL).name], "no half-built folder is left"
    assert digest(Path(said[0])) == digest(Path(locate(SMALL, tmp_path / "alone")))


def test_who_comes_second_takes_what_is_there(tmp_path: Path) -> None:
    tiny = parse(SMALL)
    build(tiny, tmp_path / tiny.name)
    before = digest(tmp_path / tiny.name)
    build(replace(tiny, seed=1), tmp_path / tiny.name)
    assert digest(tmp_path / tiny.name) == before
    assert len(list(tmp_path.iterdir())) == 1
