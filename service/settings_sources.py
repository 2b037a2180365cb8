"""Where settings come from, and what is said about those that cannot be used.

    ValueError
    └── SettingsProblem      the file of settings cannot be used

What is written in code wins over an environment variable, that over the file, that over the default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from service.domain.nearest import nearest

PREFIX = "SHARDPROOF_"
FILE = "config"
"""The setting that names the file. It cannot stand in the file itself."""


class SettingsProblem(ValueError):
    """The text says what is wrong and where, a line for each."""


class FileSource(InitSettingsSource):
    """The TOML file that the sources before this one name, by the names of the settings in lower case."""

    def __init__(self, settings: type[BaseSettings], before: Iterable[PydanticBaseSettingsSource]) -> None:
        self.path = _named(before)
        super().__init__(settings, {} if self.path is None else _read(self.path, settings))


def explained(error: ValidationError) -> str:
    """``error`` by the names under which somebody wrote the settings. No values: one may be a secret."""
    return "\n".join(_line(item) for item in error.errors(include_input=False))


def _line(item: ErrorDetails) -> str:
    name, *inner = map(str, item["loc"])
    variable = f"{PREFIX}{name.upper()}"
    # What is not in the environment was in the file; a default is none to be wrong.
    where = variable if variable in os.environ else f"{name} in {os.environ.get(PREFIX + FILE.upper())}"
    return f"{'.'.join((where, *inner))}: {item['msg']}; see docs/settings.md"


def _named(before: Iterable[PydanticBaseSettingsSource]) -> Path | None:
    for source in before:
        found = source().get(FILE)
        if found is not None:
            return Path(found).expanduser()
    return None


def _read(path: Path, settings: type[BaseSettings]) -> dict[str, Any]:
    """
    Raises:
        SettingsProblem: the file cannot be read, is no TOML, or names what is no setting.
    """
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsProblem(f"{PREFIX}CONFIG: {path} cannot be read ({error.strerror}); name a TOML file") from error
    except ValueError as error:
        raise SettingsProblem(f"{path} is not TOML: {error}; write name = value, a line for each setting") from error
    known = settings.model_fields.keys() - {FILE}
    unknown = [_unknown(path, name, sorted(known)) for name in written if name not in known]
    if unknown:
        raise SettingsProblem("\n".join(unknown))
    return written


def _unknown(path: Path, name: str, known: list[str]) -> str:
    near = nearest(name.lower().removeprefix(PREFIX.lower()), known)
    hint = f"did you mean {near}?" if near else "docs/settings.md has all of them, without the prefix and in lower case"
    return f"{path}: {name} is no setting; {hint}"
