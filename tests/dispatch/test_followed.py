"""A cell that a controller has run is followed: real Ray, real actors, engines played by a script."""

from __future__ import annotations

import pytest

from dispatch.scripted import Asked, cells, controlling, has_ended, settings_in, short_folder, submit, until
from service.store import repositories

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_what_sweeps_found_of_a_configuration_is_one_series() -> None:
    with short_folder() as folder:
        settings = settings_in(folder / "home")
        with controlling(settings) as (controller, store):
            sweeps = []
            for _ in range(2):
                asked = (Asked("a"), Asked("twin", same_as="a"), Asked("dead", env={"DIE": "1"}))
                sweeps.append(submit(controller, settings, *asked))
                until(lambda: has_ended(store, sweeps[-1]))
            found = cells(store, sweeps[0])
            with store.reading() as session:
                series = repositories.series.list_series(session, 10)
                ids = {
                    name: repositories.series.series_of_cell(session, sweeps[0], cell.id)
                    for name, cell in found.items()
                }
                outcomes = repositories.series.outcomes_of(session, ids["a"] or "", 10)
                notices = repositories.series_notices.notices(session, 10)
    assert {item.id for item in series} == {ids["a"], ids["dead"]}
    assert ids["twin"] == ids["a"]
    assert [outcome.sweep_id for outcome in outcomes] == sweeps[::-1]
    assert {outcome.verdict for outcome in outcomes} == {found["a"].verdict}
    assert [(item.kind, item.series_id, item.sweep_id) for item in notices if item.series_id == ids["dead"]] == [
        ("new-failure", ids["dead"], sweeps[0])
    ]
