"""The files of a run, wherever they lie: on a disk that this machine sees, or at ``SHARDPROOF_ARTIFACTS_URL``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from service.kept_files import KeptFiles
from service.run_files import Artifact, Opened, RunFiles
from service.settings import Settings
from service.store.records import RunRecord, UnknownRecord
from workers.artifacts import ArtifactPlace

LOG = "engine.log"


class Artifacts:
    """Each arm's folder is in one of ``parts``."""

    def __init__(self, parts: Sequence[RunFiles | KeptFiles]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Artifact]:
        """Every file, by arm and then by path."""
        yield from sorted((item for part in self._parts for item in part), key=lambda item: order(item.path))

    def logs(self) -> Iterator[tuple[str, Artifact]]:
        """What the engine of each arm wrote, by arm."""
        for item in self:
            arm, _, rest = item.path.partition("/")
            if rest == LOG:
                yield arm, item

    def open(self, path: str) -> Opened:
        """The file at ``path``. The caller closes it, or reads its chunks to their end.

        Raises:
            UnknownRecord: if there is no such file, or it lies elsewhere.
            ArtifactsError: if the place that it is kept at does not answer.
        """
        name = path.partition("/")[0]
        for part in self._parts:
            if name in part:
                return part.open(path)
        raise UnknownRecord("artifact", path)


def order(path: str) -> tuple[str, str]:
    """By which files are listed: arm first, since one arm's name may begin like another's."""
    return path.partition("/")[0], path


def artifacts_of(run: RunRecord, settings: Settings) -> Artifacts:
    """Of the run's own arms, and of the arms that it shares with other cells as ``shared-ROLE``."""
    spec = run.spec
    root = settings.artifacts_dir / run.sweep_id
    shared = {
        "shared-probe": spec.probe,
        "shared-replicated": spec.replicated,
        "shared-reference": spec.reference,
        "shared-eval-replicated": spec.evaluated,
    }
    folders = {Path(arm.folder).name: Path(arm.folder) for arm in spec.arms}
    folders |= {name: Path(folder) for name, folder in shared.items() if folder is not None}
    here = {name: folder for name, folder in folders.items() if settings.artifacts_url is None or folder.is_dir()}
    parts: list[RunFiles | KeptFiles] = [RunFiles(root, here)]
    if settings.artifacts_url is not None:
        kept = dict(_kept(folders.keys() - here.keys(), folders, settings.artifacts_dir, run.sweep_id))
        parts.append(KeptFiles(ArtifactPlace(settings.artifacts_url), kept))
    return Artifacts(parts)


def _kept(names: set[str], folders: dict[str, Path], artifacts_dir: Path, sweep_id: str) -> Iterator[tuple[str, str]]:
    """Names at the place, of the folders of this sweep alone."""
    for name in names:
        with contextlib.suppress(ValueError):
            kept = folders[name].relative_to(artifacts_dir)
            if kept.parts[:1] == (sweep_id,) and ".." not in kept.parts:
                yield name, kept.as_posix()
