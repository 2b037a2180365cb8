"""Files of runs at ``SHARDPROOF_ARTIFACTS_URL``: those of nodes whose disks this machine does not see."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

from service.run_files import Artifact, Opened
from service.store.records import UnknownRecord
from workers.artifacts import ArtifactPlace


class KeptFiles:
    """``folders``: by the name an arm goes by, under which name its files are kept at ``place``.

    All methods raise ``ArtifactsError`` when the place does not answer.
    """

    def __init__(self, place: ArtifactPlace, folders: Mapping[str, str]) -> None:
        self._place = place
        self._folders = dict(sorted(folders.items()))

    def __contains__(self, name: object) -> bool:
        """Is there an arm's folder of this name?"""
        return name in self._folders

    def __iter__(self) -> Iterator[Artifact]:
        """Every file, by arm and then by path."""
        for name, folder in self._folders.items():
            for stored in self._place.files(folder):
                yield Artifact(f"{name}/{stored.name.removeprefix(folder).lstrip('/')}", stored.size, None)

    def open(self, path: str) -> Opened:
        """The file at ``path``, read as a whole.

        Raises:
            UnknownRecord: if there is no such file.
        """
        name, *inner = path.split("/")
        if name not in self._folders or not inner or any(part in ("", ".", "..") for part in inner):
            raise UnknownRecord("artifact", path)
        stored = "/".join([self._folders[name], *inner])
        if stored not in [file.name for file in self._place.files(stored)]:
            raise UnknownRecord("artifact", path)
        content = self._place.read(stored)
        return Opened(io.BytesIO(content), len(content))
