"""Deliveries over HTTP reach the table once, and their segments go when they are committed."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from helios import Webhook
from helios.errors import InputError
from helios.script import load_script
from helios.sources.webhook.declare import ID, RECEIVED
from helios.sources.webhook.receiving import receiving
from helios.sources.webhook.segments import Segments
from tests.suite.deaths import dies_before_commit
from tests.suite.waiting import until
from tests.unit.webhooks.test_receiver import SECRET, post

pytestmark = pytest.mark.promise("webhook")

EXAMPLE = Path(__file__).parents[2] / "examples" / "webhooks.py"


def hook(world: Any, **options: Any) -> Any:
    made = Webhook.source("/orders", secret=SECRET, schema="id bigint NOT NULL, name string", **options)
    return made.listen("127.0.0.1:0").segments(str(world.folder / "segments"))


def deliver(url: str, ids: range) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: post(url, b'{"id": %d, "name": "n"}' % n, f"m{n}")[0], ids))
    assert answers == [200] * len(ids)


def waiting(world: Any) -> list[Path]:
    return sorted(file for file in (world.folder / "segments").glob("*.json"))


@pytest.mark.short
def test_a_run_receives_and_commits(world: Any) -> None:
    pipeline = hook(world) >> world.sink("a.t")
    run = world.start(pipeline)
    try:
        until(lambda: any(event.message.startswith("receiving ") for event in world.events))
        url = next(event.message for event in world.events if event.message.startswith("receiving "))[10:]
        deliver(url, range(50))
        until(lambda: run.rows >= 50)
        deliver(url, range(40, 60))  # twenty, of which ten came before
        until(lambda: run.rows >= 60)
    finally:
        run.stop()
        run.await_termination()
    assert world.rows("a.t", "id") == Counter((n,) for n in range(60))
    assert world.load("a.t").iceberg.schema().column_names == ["id", "name"]


@pytest.mark.landing
def test_what_waits_is_drained_once_and_deleted_after_the_next_batch(world: Any) -> None:
    pipeline = hook(world).with_metadata() >> world.sink("a.t")
    for ids in (range(10), range(10, 20), range(20, 30)):
        with receiving([hook(world)]) as (url,):
            deliver(url, ids)
        with dies_before_commit():
            world.run(pipeline)
        world.run(pipeline)
        assert waiting(world)  # of the last batch: a crash may read it once more
    assert world.rows("a.t", "id", "_webhook_id") == Counter((n, f"m{n}") for n in range(30))
    assert len(waiting(world)) == 1


def _line(n: int) -> tuple[str, bytes]:
    return f"m{n}", json.dumps({ID: f"m{n}", RECEIVED: "2026-01-01T00:00:00Z", "id": n}).encode()


def store(world: Any, ids: range) -> None:
    """Segments of one delivery each."""
    segments = Segments(world.folder / "segments")
    segments.open()
    for n in ids:
        segments.append([_line(n)])
        segments.seal()
    segments.close()


def test_the_log_of_segments_that_are_gone_stays_small(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helios.sources.webhook.spark.reader.FANOUT", 2)
    pipeline = hook(world).incremental(max_files=1) >> world.sink("a.t")
    log = Path(world.checkpoint(pipeline)) / "helios" / "files" / "0"
    for ids in (range(5), range(5, 8)):
        store(world, ids)
        world.run(pipeline)
        entries = sorted(int(file.name.partition(".")[0]) for file in log.iterdir() if not file.name.startswith("."))
        assert len(entries) <= 3, entries  # eight without it
        assert entries[-1] == ids.stop
    assert world.rows("a.t", "id") == Counter((n,) for n in range(8))
    assert len(waiting(world)) == 1


@pytest.mark.landing
def test_deliveries_have_one_reader(world: Any) -> None:
    with receiving([hook(world)]) as (url,):
        deliver(url, range(3))
    world.run(hook(world) >> world.sink("a.t"))
    with pytest.raises(InputError, match=r"the pipeline .*a\.t reads these deliveries.*one table and follow the table"):
        world.run(hook(world) >> world.sink("a.other"))


def test_new_fields_become_columns(world: Any) -> None:
    pipeline = hook(world, extra="add") >> world.sink("a.t")
    with receiving([hook(world, extra="add")]) as (url,):
        assert post(url, b'{"id": 1}', "m1")[0] == 200
        assert post(url, b'{"id": 2, "age": 7}', "m2")[0] == 200
    world.run(pipeline)
    assert world.rows("a.t", "id", "name", "age") == Counter([(1, None, None), (2, None, "7")])


def test_what_a_killed_receiver_has_left(world: Any) -> None:
    """Acknowledged deliveries in a segment that nobody has sealed."""
    pipeline = hook(world) >> world.sink("a.t")
    dead = Segments(world.folder / "segments")
    dead.open()
    dead.append([_line(1), _line(2)])
    assert dead._lock is not None
    dead._lock.release()  # as the kernel does for a process that is gone
    world.run(pipeline)
    assert world.rows("a.t", "id") == Counter([(1,), (2,)])
    with receiving([hook(world)]) as (url,):  # sent again
        assert post(url, b'{"id": 2}', "m2") == (200, {"status": "duplicate"})


def test_what_a_receiver_keeps_open_is_told(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helios.sources.webhook.spark.reader.LONGEST_WAIT", 0.3)
    living = Segments(world.folder / "segments")
    living.open()
    living.append([_line(1)])
    world.run(hook(world) >> world.sink("a.t"))
    told = [event.message for event in world.events]
    assert any("deliveries in .open-" in one and "which a receiver is writing" in one for one in told), told
    living.close()
    world.run(hook(world) >> world.sink("a.t"))
    assert world.rows("a.t", "id") == Counter([(1,)])


def test_quarantined_deliveries_name_the_webhook(world: Any) -> None:
    store(world, range(2))
    odd = {ID: "odd", RECEIVED: "2026-01-01T00:00:00Z", "id": "x"}
    (world.folder / "segments" / "0-odd.json").write_text(json.dumps(odd) + "\n")
    world.run(hook(world).on_bad_row("quarantine") >> world.sink("a.t").quarantine("a.q"))
    assert world.rows("a.q", "step") == Counter([("Webhook.source(/orders, poll=1 s).on_bad_row",)])
    assert world.rows("a.t", "id") == Counter([(0,), (1,)])


@pytest.mark.promise("documents")
def test_the_example(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    given = {"listen": "127.0.0.1:0", "segments": str(world.folder / "segments")}
    received, orders = load_script(EXAMPLE, given).choose(None)
    for hour, statuses in enumerate((("open", "open", "lost"), ("paid", "cancelled", "open"), ("open",))):
        with receiving([received.stream.source]) as (url,):
            for id, status in enumerate(statuses, 1):
                at = f"2026-01-01T{9 - hour if hour == 2 else 10 + hour:02}:00:00Z"  # the last one is late
                body = {"id": id, "status": status, "amount": 2.5, "changed_at": at}
                assert post(url, json.dumps(body).encode(), f"m{hour}-{id}")[0] == 200
                assert post(url, json.dumps(body).encode(), f"m{hour}-{id}")[0] == 200  # sent again
        world.run(received)
        world.run(orders)
    assert world.rows("shop.deliveries", "id", "status") == Counter(
        {(1, "open"): 2, (2, "open"): 1, (1, "paid"): 1, (2, "cancelled"): 1, (3, "open"): 1}
    )
    assert sum(world.rows("shop.odd_deliveries", "reason").values()) == 1
    assert world.rows("shop.orders", "id", "status") == Counter({(1, "paid"): 1, (3, "open"): 1})
