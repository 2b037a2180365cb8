"""``shardproof comment``: a sweep in Markdown, for a pull request."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from service.alerts.links import Links
from service.alerts.of_notices import told_of_sweep
from service.client import Client
from service.commands.key_header import VARIABLE
from service.commands.refused import Refused
from service.domain.comments import comment as comment_on
from service.report import stored_report
from service.settings import Settings
from service.store import open_store
from service.store.records import UnknownRecord


def comment(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="Id of a sweep.")],
    url: Annotated[str | None, typer.Option("--url", help="Ask this controller instead of the local store.")] = None,
) -> None:
    """Print a sweep as a comment on a pull request, in Markdown.

    For GitHub: `shardproof comment SWEEP | gh pr comment PR --body-file -`.
    """
    # As it is: nothing of it is markup of the terminal.
    sys.stdout.write(_local(sweep) if url is None else _served(sweep, url))


def _served(sweep: str, url: str) -> str:
    with Client(url, os.environ.get(VARIABLE, "").strip() or None) as client:
        return client.comment(sweep)


def _local(sweep: str) -> str:
    settings = Settings()
    links = Links(settings.public_url)
    store = open_store(settings.store_url)
    try:
        with store.reading() as session:
            return comment_on(stored_report(session, sweep), told_of_sweep(session, sweep, links), links.sweep(sweep))
    except UnknownRecord as error:
        raise Refused(f"{error}; `shardproof run` prints the id of each sweep") from error
    finally:
        store.close()
