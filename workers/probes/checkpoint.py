"""Whether a folder holds all of a model's weights, told by the headers of its files. No weight is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
SHOWN = 3
"""So many of the missing names are said; the others are counted."""

KNOWN_LAYOUT = 0.5
"""With less of the expected names than this a checkpoint names its tensors in another way: the engine's to read."""


class CheckpointError(ValueError):
    """A checkpoint is not complete. The message names what is missing first."""


def check(model: str, config: Any) -> None:
    """Hold the files in the folder ``model`` against the model class that ``transformers`` has for ``config``.

    Nothing is said of what is not a folder of safetensors, or of a class that ``transformers`` does not have.

    Raises:
        CheckpointError: when a file that the index lists is not there or cannot be read, or weights are missing.
    """
    folder = Path(model)
    if not folder.is_dir() or not any(folder.glob("*.safetensors*")):
        return
    there = {name for file in _files(folder) for name in _names(file)}
    wanted = list(_wanted(config))
    missing = [name for name in wanted if name not in there]
    if missing and len(missing) <= KNOWN_LAYOUT * len(wanted):
        raise CheckpointError(f"the checkpoint {folder} lacks {_listed(missing)}")


def _files(folder: Path) -> list[Path]:
    """The weight files: those that the index lists, or all there are."""
    if not (folder / INDEX).exists():
        return sorted(folder.glob("*.safetensors"))
    try:
        listed = sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder / INDEX} is not an index of weights: {error}") from error
    lost = [name for name in listed if not (folder / name).is_file()]
    if lost:
        raise CheckpointError(f"the checkpoint {folder} lacks {_listed(lost)}, which {INDEX} lists")
    return [folder / name for name in listed]


def _names(file: Path) -> list[str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:
            return list(tensors.keys())
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"the weights in {file} cannot be read: {error}") from error


def _wanted(config: Any) -> Iterator[str]:
    """Names of the weights as ``save_pretrained`` writes them. Tied weights are stored once."""
    import torch
    import transformers

    model_class = next((getattr(transformers, name, None) for name in config.architectures or ()), None)
    if model_class is None:
        return
    try:
        with torch.device("meta"):
            model = model_class(config)
    except Exception:  # What transformers cannot build from the engine's configuration is the engine's to judge.
        return
    model.tie_weights()
    yield from _as_saved(model, dict(model.named_parameters()))


def _as_saved(model: Any, weights: dict[str, Any]) -> Iterator[str]:
    """Since its version 5 ``transformers`` runs some models with weights joined that lie apart in a checkpoint."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        yield from weights
    else:
        yield from revert_weight_conversion(model, weights)


def _listed(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
