"""``tiny:`` models: real architectures with random weights from a fixed seed, built where they are used.

``tiny:llama?layers=4&hidden=256&heads=4&kv_heads=2&dtype=bfloat16&rms_norm_eps=1e-6&seed=1``. The folder's name is a
hash of the description, so that a model is built once and found again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from workers.engine import byte_tokenizer

SCHEME = "tiny:"
HOME = "~"
KINDS = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
}
"""Kind → the classes of ``transformers`` that make it."""

EXPERTS = 4
EXPERTS_PER_TOKEN = 2
DTYPES = ("float32", "bfloat16", "float16")
MOST_PARAMETERS = 2_000_000_000
CONTENT = 2
"""Goes up when the same description makes another folder, so that one built before is not taken for it."""


class ModelError(ValueError):
    """The model that was asked for cannot be had. The message says what to write instead."""


@dataclass(frozen=True)
class TinyModel:
    """``intermediate`` defaults to twice the hidden size. Head size is hidden / heads; CPU attention wants 32, 64, …"""

    kind: str = "llama"
    layers: int = 2
    hidden: int = 128
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 0
    vocab: int = 512
    positions: int = 512
    dtype: str = "float32"
    rms_norm_eps: float = 1e-5
    seed: int = 0

    @property
    def parameters(self) -> int:
        """How many there are, roughly: biases and norms do not count."""
        per_layer = 4 * self.hidden**2 + 3 * self.hidden * (self.intermediate or 2 * self.hidden)
        return self.layers * per_layer + 2 * self.vocab * self.hidden

    @property
    def name(self) -> str:
        digest = hashlib.sha256(json.dumps([CONTENT, asdict(self)], sort_keys=True).encode()).hexdigest()[:10]
        return f"{self.kind}-{self.layers}x{self.hidden}-{digest}"


def parse(model: str) -> TinyModel:
    """The model described by a ``tiny:`` name.

    Raises:
        ModelError: for an unknown kind or option, or a value that makes no model.
    """
    kind, _, query = model.removeprefix(SCHEME).partition("?")
    if kind not in KINDS:
        raise ModelError(f"there is no tiny model {kind!r}; known: {', '.join(KINDS)}")
    known = {field.name: field.type for field in fields(TinyModel) if field.name != "kind"}
    values: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise ModelError(f"unknown option {key!r} of {SCHEME}{kind}; known: {', '.join(sorted(known))}")
        values[key] = _convert(key, text, str(known[key]))
    tiny = TinyModel(kind=kind, **values)
    _check(tiny)
    return tiny


def _convert(key: str, text: str, kind: str) -> Any:
    try:
        return {"int": int, "float": float, "str": str}[kind](text)
    except ValueError as error:
        raise ModelError(f"option {key!r} of a tiny model takes {kind}, not {text!r}") from error


def _check(tiny: TinyModel) -> None:
    for key in ("layers", "hidden", "heads", "kv_heads", "vocab", "positions"):
        if getattr(tiny, key) < 1:
            raise ModelError(f"option {key!r} of a tiny model is at least 1, not {getattr(tiny, key)}")
    if tiny.intermediate < 0 or not 0 <= tiny.seed < 2**63:
        raise ModelError("options 'intermediate' and 'seed' of a tiny model are at least 0, the seed below 2**63")
    if tiny.parameters > MOST_PARAMETERS:
        raise ModelError(f"a tiny model has at most {MOST_PARAMETERS:,} parameters: ask for fewer or smaller layers")
    if tiny.dtype not in DTYPES:
        raise ModelError(f"option 'dtype' of a tiny model is one of {', '.join(DTYPES)}, not {tiny.dtype!r}")
    if not 0 < tiny.rms_norm_eps < math.inf:
        raise ModelError(f"rms_norm_eps is {tiny.rms_norm_eps}; it must be above 0, vLLM's passes know 1e-5 and 1e-6")
    if tiny.hidden % tiny.heads:
        raise ModelError(f"hidden={tiny.hidden} does not divide into heads={tiny.heads}")
    if tiny.heads % tiny.kv_heads:
        raise ModelError(f"heads={tiny.heads} is not a multiple of kv_heads={tiny.kv_heads}")


def locate(model: str, models_dir: str | Path) -> str:
    """The path of ``model``, built first if it is a ``tiny:`` name; a hub id is returned as it is."""
    if not model.startswith(SCHEME):
        path = Path(model).expanduser()
        if model.startswith(("/", "./", "../", HOME)) and not path.is_dir():
            raise ModelError(f"there is no folder {model!r}; give a folder with a config.json, a hub id, or tiny:llama")
        return str(path) if model.startswith(HOME) else model
    tiny = parse(model)
    folder = Path(models_dir) / tiny.name
    if not (folder / "config.json").exists():
        build(tiny, folder)
    return str(folder)


def build(tiny: TinyModel, folder: Path) -> None:
    """Write config, weights and, where the vocabulary has room for it, a tokenizer.

    Complete or not there at all, also when two processes build at once.
    """
    import torch
    import transformers

    config_class, model_class = (getattr(transformers, name) for name in KINDS[tiny.kind])
    torch.manual_seed(tiny.seed)
    model: Any = model_class(config_class(**_configuration(tiny))).to(getattr(torch, tiny.dtype))
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".building-"))
    model.save_pretrained(scratch)
    if tiny.vocab >= byte_tokenizer.SIZE:
        byte_tokenizer.save(scratch)
    try:
        os.rename(scratch, folder)
    except OSError:
        # Somebody else finished the same model first; theirs is as good.
        shutil.rmtree(scratch)


def _configuration(tiny: TinyModel) -> dict[str, Any]:
    intermediate = tiny.intermediate or 2 * tiny.hidden
    settings: dict[str, Any] = {
        "vocab_size": tiny.vocab,
        "hidden_size": tiny.hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": tiny.layers,
        "num_attention_heads": tiny.heads,
        "num_key_value_heads": tiny.kv_heads,
        "head_dim": tiny.hidden // tiny.heads,
        "max_position_embeddings": tiny.positions,
        "rms_norm_eps": tiny.rms_norm_eps,
        # Keeps activations near 1 through the layers, so that attention and MLP matter beside the residual.
        "initializer_range": tiny.hidden**-0.5,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    if tiny.kind == "qwen3_moe":
        settings |= {
            "num_experts": EXPERTS,
            "num_experts_per_tok": EXPERTS_PER_TOKEN,
            "moe_intermediate_size": intermediate,
            "norm_topk_prob": True,
        }
    return settings
