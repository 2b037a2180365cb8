from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from api.client import Client
from store.nights import add_night, add_nights, night, series, sweep_of
from store.samples import add_sweep, advance, phase

from dashboard.page import Page
from service.domain.lifecycle import State
from service.domain.notices import NoticeKind
from service.domain.schedule import Missed
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.repositories import outcomes
from service.store.schedule_records import Claim, ScheduleFields
from service.store.series_records import NewNotice

EARLIER, LATER = "20261129-021500-aaaaaa", "20261130-021500-ab12cd"


def ended(store: Store, sweep_id: str, failed: dict[str, tuple[Verdict, str]], name: str = "quickstart") -> None:
    """A sweep of three cells, of which some are not ok."""
    for cell_id in add_sweep(store, sweep_id, 3, name=name):
        verdict, reason = failed.get(cell_id, (Verdict.PASS, "all checks held"))
        advance(store, cell_id, State.QUEUED, State.LEASED, State.RUNNING, sweep_id=sweep_id)
        with store.transaction() as session:
            ok = verdict is Verdict.PASS
            repositories.conclude_cell(session, sweep_id, cell_id, verdict, ok, [reason], State.FINISHED)
    with store.transaction() as session:
        repositories.end_sweep(session, sweep_id)


def attention(client: Client) -> str:
    return Page(client.get("/").text).text.partition("Needs attention")[2].partition("Running")[0]


def test_new_failures_come_first_and_are_called_new(client: Client, store: Store) -> None:
    ended(store, EARLIER, {"c0": (Verdict.CRASHED, "crashed: still")})
    ended(store, LATER, {"c0": (Verdict.CRASHED, "crashed: still"), "c2": (Verdict.FAIL_GUARD, "fail-guard: now")})
    text = attention(client)
    assert text.index("✗ fail-guard new cell c2") < text.index("✗ crashed cell c0")
    assert text.count("new") == 1


def test_what_failed_before_and_holds_now_is_not_told(client: Client, store: Store) -> None:
    ended(store, EARLIER, {"c0": (Verdict.CRASHED, "crashed: before")})
    ended(store, LATER, {})
    assert "each cell is as expected" in attention(client)
    ended(store, "20261128-000000-ffffff", {"c1": (Verdict.CRASHED, "crashed: elsewhere")}, name="another")
    assert "crashed: elsewhere" in attention(client)


def test_failures_of_a_sweep_that_still_runs_do_not_wait_for_its_end(client: Client, store: Store) -> None:
    before = {cell: (Verdict.CRASHED, f"crashed: {cell} before") for cell in ("c0", "c1")}
    ended(store, EARLIER, before)
    add_sweep(store, LATER, 4)
    for cell_id, reason in (("c0", "crashed: again"), ("c2", "crashed: now")):
        advance(store, cell_id, State.QUEUED, State.LEASED, State.RUNNING, sweep_id=LATER)
        with store.transaction() as session:
            repositories.conclude_cell(session, LATER, cell_id, Verdict.CRASHED, False, [reason], State.FAILED)
    text = attention(client)
    assert text.index("✗ crashed new cell c2") < text.index("crashed: again")
    assert text.count("new") == 1
    assert "crashed: c1 before" in text, "what comes out again is not known yet"
    assert "crashed: c0 before" not in text


def test_without_a_sweep_before_nothing_is_called_new(client: Client, store: Store) -> None:
    ended(store, LATER, {"c0": (Verdict.TIMED_OUT, "timed-out: rank 1 waits")})
    assert "✗ timed-out cell c0 in quickstart" in attention(client)
    assert "new" not in attention(client)


def test_a_failure_is_two_clicks_from_its_reason(client: Client, store: Store) -> None:
    ended(store, LATER, {"c1": (Verdict.FAIL_RESIDUAL, "fail-residual: rank 1 holds zeros")})
    (link,) = [href for href in Page(client.get("/").text).attributes("href") if "/cells/" in href]
    assert "rank 1 holds zeros" in Page(client.get(f"/{link}").text).text


def notice(kind: NoticeKind, at: datetime, what: str, number: int = 0, figure: str = "cold_s") -> NewNotice:
    return NewNotice(at, kind, "s1", figure, sweep_of(number), "c0", what)


def slow(store: Store) -> None:
    """A series that got slower some nights ago and stays so."""
    add_sweep(store, cells=0)
    add_nights(store, [20.0] * 12 + [30.0] * 3)


def test_a_regression_is_told_until_the_series_stands_well_again(client: Client, store: Store) -> None:
    slow(store)
    with store.transaction() as session:
        for kind, what in ((NoticeKind.SUSPECTED, "it may be slower"), (NoticeKind.REGRESSION, "it is slower")):
            outcomes.add_notice(session, notice(kind, night(13), what, 13))
    text = attention(client)
    assert "▲ regression sp-full-graph" in text
    assert "it is slower" in text
    assert "it may be slower" not in text
    for number in range(15, 18):
        add_night(store, number, {"cold_s": 20.0})
    assert "it is slower" not in attention(client)


def test_what_got_better_lately_has_a_place_of_its_own(client: Client, store: Store) -> None:
    slow(store)
    now = datetime.now(UTC)
    with store.transaction() as session:
        outcomes.add_notice(session, notice(NoticeKind.IMPROVEMENT, now - timedelta(days=30), "long ago"))
        outcomes.add_notice(session, notice(NoticeKind.IMPROVEMENT, now - timedelta(hours=1), "faster now"))
    text = attention(client).partition("Better than before")[2]
    assert "▼ improvement sp-full-graph" in text
    assert "faster now" in text
    assert "long ago" not in text


def test_pinned_series_show_how_they_stand(client: Client, store: Store) -> None:
    slow(store)
    assert "Pinned series" not in attention(client)
    with store.transaction() as session:
        repositories.series_said.set_pinned(session, "s1", True)
    text = attention(client)
    assert "Pinned series sp-full-graph" in text
    assert "cold start 30 s ▲ slower +50 %" in text


def test_a_pinned_series_with_one_point_draws_no_line(client: Client, store: Store) -> None:
    add_sweep(store, cells=0)
    today = (datetime.now(UTC) - night(0)).days
    add_night(store, today, {"warm_s": 5.0}, of=series("s2", "young"))
    with store.transaction() as session:
        repositories.series_said.set_pinned(session, "s2", True)
    page = Page(client.get("/").text)
    assert "warm start 5 s · no baseline yet" in page.text
    assert page.named("polyline") == []
    add_night(store, today + 1, {"warm_s": 6.0}, of=series("s2", "young"), cell="c1")
    assert len(Page(client.get("/").text).named("polyline")) == 1


def test_running_cells_stand_there_with_what_they_do(client: Client, store: Store) -> None:
    add_sweep(store)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.add_events(session, [phase("c0", 1, "dynamo")])
    for path in ("/", "/overview/table"):
        text = Page(client.get(path).text).text
        assert "Running cell c0 in quickstart" in text
        assert "cold rank 1: dynamo" in text


def test_the_part_that_changes_is_the_page_s(client: Client, store: Store) -> None:
    ended(store, LATER, {"c1": (Verdict.CRASHED, "crashed: now")})
    part: Any = client.get("/overview/table").text
    assert "crashed: now" in part
    assert "<html" not in part


def scheduled(store: Store, name: str, *sweeps: str | None, suspended: bool = False) -> None:
    """A schedule that fired as often: the sweep of each time, or ``None`` where it was refused."""
    now = datetime(2026, 11, 30, tzinfo=UTC)
    claim = Claim("here", now + timedelta(minutes=2))
    with store.transaction() as session:
        fields = ScheduleFields("0 2 * * *", "UTC", Missed.SKIP, suspended, {"engine": {"model": "tiny:llama"}})
        repositories.create_schedule(session, name, fields, now)
        for number, sweep_id in enumerate(sweeps):
            fire = repositories.claim_asked(session, name, now + timedelta(days=number), claim)
            detail = None if sweep_id else f"UnusableMatrix: {name} at time {number}"
            repositories.conclude_fire(session, fire.id, "here", now + timedelta(days=number), sweep_id, detail)


def test_a_schedule_whose_sweep_was_refused_needs_attention(client: Client, store: Store) -> None:
    scheduled(store, "nightly", EARLIER, None)
    text = attention(client)
    assert "✗ no sweep nightly in schedules" in text
    assert "UnusableMatrix: nightly at time 1" in text
    assert "schedules/nightly" in Page(client.get("/").text).attributes("href")
    ended(store, LATER, {"c1": (Verdict.CRASHED, "crashed: now")})
    assert attention(client).index("nightly at time 1") < attention(client).index("crashed: now")


def test_a_schedule_that_goes_on_or_rests_needs_none(client: Client, store: Store) -> None:
    ended(store, EARLIER, {})
    scheduled(store, "mended", None, LATER)
    scheduled(store, "resting", EARLIER, None, suspended=True)
    scheduled(store, "never")
    assert "each cell is as expected" in attention(client)
