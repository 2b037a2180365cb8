"""The engine environments of a sweep as the controller sees them: each is asked by its own interpreter."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from service.dispatch import newest, questions
from service.domain import environments
from service.domain.environments import Definition
from service.domain.errors import Problems
from service.settings import Settings
from workers.environments import shelf
from workers.environments.failure import EnvironmentFailure
from workers.environments.provide import provided
from workers.environments.shelf import Shelved
from workers.protocol import DEFAULT, Catalogue, EnvironmentSpec, KeyInfo

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engine:
    """One engine environment. ``settings``: the controller's, with its interpreter in place of the default one.

    ``spec``: how to have it on another machine, ``None`` for the default one. ``description``: what was built.
    """

    name: str
    settings: Settings
    catalogue: Catalogue
    spec: EnvironmentSpec | None = None
    description: Mapping[str, Any] | None = None


def defined(settings: Settings) -> dict[str, Definition]:
    """The environments that the operator defined, which were found to be good when the settings were read.

    What a matrix defines is added to them. This, and :meth:`Engines.get`, is where it has to be decided which
    requirements and interpreters somebody may name.
    """
    return environments.read(settings.environments, Problems())


class Engines:
    """The environments of one plan. Inside the ``with`` block none of them is collected."""

    def __init__(self, settings: Settings, definitions: Mapping[str, Definition]) -> None:
        self._settings = settings
        self._definitions = definitions
        self._held = contextlib.ExitStack()
        self._found: dict[str, Engine | EnvironmentFailure] = {}

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._held.close()

    def get(self, name: str) -> Engine:
        """The environment ``name``, built if need be. What could not be had once is not tried again.

        Raises:
            EnvironmentFailure: it cannot be had, or does not answer.
            EngineEnvironmentError: the same of the default one.
        """
        if name not in self._found:
            self._found[name] = self._have(name)
        found = self._found[name]
        if isinstance(found, EnvironmentFailure):
            raise found
        return found

    def known_to_any(self, names: list[str]) -> Catalogue:
        """The settings that the default environment or any of ``names`` knows; those that cannot be had know none."""
        keys: dict[str, KeyInfo] = {}
        for name in names:
            with contextlib.suppress(EnvironmentFailure):
                keys |= self.get(name).catalogue.keys
        default = self.get(DEFAULT).catalogue
        return default.model_copy(update={"keys": keys | default.keys})

    def _have(self, name: str) -> Engine | EnvironmentFailure:
        if name == DEFAULT:
            return Engine(DEFAULT, self._settings, questions.catalogue(self._settings))
        if self._settings.null_engine is not None:
            return EnvironmentFailure(f"environment {name}: the null engine takes the place of the default one alone")
        try:
            spec = spec_of(newest.resolved(self._definitions[name], self._settings), self._settings)
            built = self._held.enter_context(
                provided(spec, str(self._settings.python), lambda: logger.info("building environment %s", name))
            )
            settings = self._settings.model_copy(update={"python": Path(built.python)})
            return Engine(name, settings, questions.catalogue(settings), spec, built.description)
        except EnvironmentFailure as failure:
            return failure
        except questions.EngineEnvironmentError as error:
            return EnvironmentFailure(f"environment {name}: {error}")


def collect(settings: Settings, unused_s: float) -> list[Shelved]:
    """Delete the environments of this machine that nobody has used for so many seconds, and what was learnt in them."""
    gone = shelf.collect(settings.environments_dir, unused_s)
    for item in gone:
        for cache in (settings.home / "cache").glob(f"*-{item.folder.name}"):
            shutil.rmtree(cache, ignore_errors=True)
    return gone


def spec_of(definition: Definition, settings: Settings) -> EnvironmentSpec:
    """``definition``, which names what is to be installed, as it is told to other machines."""
    return EnvironmentSpec(
        name=definition.name,
        root=str(settings.environments_dir),
        requirements=None if definition.requirements is None else list(definition.requirements),
        interpreter=definition.interpreter,
    )
