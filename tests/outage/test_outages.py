"""Services that are away while a pipeline runs, and come back: it goes on by itself, with each row once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helios import Catalog, step
from helios.errors import RunError
from helios.metrics.endpoint import Endpoint
from tests.services.fixtures import named_skip
from tests.services.minio import PROGRAM as MINIO
from tests.services.oauth import OAuthProxy
from tests.services.proxy import Fault, answer_before, delay, drop_before
from tests.services.rest import Rest

pytestmark = [pytest.mark.promise("outage"), pytest.mark.sampled(2)]

AWAY = 4.0
COMMAND = Path(__file__).parents[2] / "perf" / "outage.py"


def copy(scene: Any, **retry: Any) -> Any:
    return scene.source("source").incremental(poll="200ms") >> scene.sink("target").retry(**retry)


def numbered(first: int, last: int) -> list[tuple[int, int]]:
    return [(i, i) for i in range(first, last)]


def ends(scene: Any, run: Any, batches: int) -> None:
    """Waits for the last batch, stops the run, and counts."""
    scene.wait_for("batch", times=batches)
    run.stop()
    assert run.await_termination(60)
    assert scene.rows("target") == Counter(dict.fromkeys(numbered(0, 100 * batches), 1))
    assert scene.stamps("target") == list(range(batches))


@pytest.mark.parametrize("way", ["kill", "pause"])
@pytest.mark.cases(landing="kill")
def test_a_catalog_that_is_away_is_waited_for(scene: Any, way: str) -> None:
    # A server that is held answers nobody; one that is slow, as this process begins, is not away.
    scene.through(scene.server.uri, rest_client_socket__timeout__ms="3000" if way == "pause" else "20000")
    scene.fill("source", numbered(0, 100))
    run = scene.start(copy(scene))
    scene.wait_for("batch")
    getattr(scene.server, way)()
    try:
        waiting = scene.wait_for("waiting")
        assert "has been away since " in waiting.message
        assert run.status()["state"] == "away"
        time.sleep(AWAY)
    finally:
        (scene.server.start if way == "kill" else scene.server.resume)()
    scene.fill("source", numbered(100, 200))
    ends(scene, run, 2)
    told = [kind for kind in scene.kinds() if kind in ("waiting", "resumed")]
    assert told == ["waiting", "resumed"]


FAULTS: dict[str, Fault] = {
    "502": answer_before(502),
    "503": answer_before(503),
    "504": answer_before(504),
    "429": answer_before(429),
    "dropped": drop_before(),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.cases(landing="dropped")
def test_a_gateway_that_answers_for_a_catalog_that_is_away(scene: Any, fault: Fault) -> None:
    scene.through(scene.proxy.uri, rest_client_max__retries="1")
    scene.fill("source", numbered(0, 100))
    run = scene.start(copy(scene))
    scene.wait_for("batch")
    rule = scene.proxy.fail(fault)
    scene.wait_for("waiting")
    scene.fill("source", numbered(100, 200))
    scene.proxy.heal()
    ends(scene, run, 2)
    assert rule.hits > 0


def once(df: Any) -> Any:
    """A step of Spark's own that keeps state."""
    return df.dropDuplicates(["id"])


@pytest.mark.landing
def test_a_stateful_pipeline_is_waited_for_with_its_state(scene: Any) -> None:
    scene.through(scene.proxy.uri)
    scene.fill("source", numbered(0, 100))
    run = scene.start(scene.source("source").incremental(poll="200ms") >> step(once) >> scene.sink("target"))
    scene.wait_for("batch")
    scene.proxy.stop()
    scene.wait_for("waiting")
    scene.fill("source", numbered(50, 200))
    scene.proxy.start()
    ends(scene, run, 2)


def test_commits_that_are_refused_for_a_while_are_put_off(scene: Any) -> None:
    scene.fill("source", numbered(0, 100))
    run = scene.start(copy(scene))
    scene.wait_for("batch")
    rule = scene.proxy.fail(answer_before(503), method="POST", path="/tables/target")
    scene.fill("source", numbered(100, 200))
    scene.wait_for("waiting")
    scene.proxy.heal()
    ends(scene, run, 2)
    assert rule.hits > 0
    metrics = run.metrics().snapshot()
    assert (metrics.commits_success, metrics.commits_failed) == (2, 0)
    assert metrics.commit_retries > 0


def test_a_late_commit_of_an_answer_that_was_given_up_lands_once(scene: Any) -> None:
    """The first request of a batch is applied when the run has long begun to ask again."""
    scene.through(scene.proxy.uri, rest_client_socket__timeout__ms="1000")
    scene.fill("source", numbered(0, 100))
    run = scene.start(copy(scene))
    scene.wait_for("batch")
    rule = scene.proxy.fail(delay(9.0), method="POST", path="/tables/target", times=1)
    scene.fill("source", numbered(100, 200))
    scene.wait_for("batch", times=2)
    until = time.monotonic() + 30
    while sum(one.fault is rule.fault for one in scene.proxy.exchanges) == 0 and time.monotonic() < until:
        time.sleep(0.1)
    [late] = [one for one in scene.proxy.exchanges if one.fault is rule.fault]
    assert late.status == 409
    ends(scene, run, 2)


def test_an_outage_that_lasts_too_long_fails_the_run(scene: Any) -> None:
    scene.through(scene.proxy.uri)
    scene.fill("source", numbered(0, 100))
    run = scene.start(copy(scene, outage=3))
    scene.wait_for("batch")
    scene.proxy.stop()
    began = time.monotonic()
    with pytest.raises(RunError, match=r"catalog prod has been away since .* for longer than the 3 s") as failed:
        run.await_termination(60)
    assert 3 <= time.monotonic() - began < 20
    assert "helios doctor --catalog prod" in str(failed.value.fix)
    with Endpoint([run]) as endpoint, pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{endpoint.url}/healthz")


def test_two_outages_are_two(scene: Any) -> None:
    """The time of the first does not count for the second, also when no row came between them."""
    scene.through(scene.proxy.uri)
    scene.fill("source", numbered(0, 100))
    run = scene.start(copy(scene, outage=5))
    scene.wait_for("batch")
    for times in (1, 2):
        scene.proxy.stop()
        scene.wait_for("waiting", times=times)
        time.sleep(2)
        scene.proxy.start()
        scene.wait_for("resumed", times=times)
        time.sleep(2)
    scene.fill("source", numbered(100, 200))
    ends(scene, run, 2)


# tokens


@pytest.mark.parametrize("way", ["revoked", "away"])
def test_a_token_that_was_not_renewed_is_asked_for_anew(scene: Any, way: str) -> None:
    with OAuthProxy(scene.server.uri, expires_in=3600 if way == "revoked" else 2) as oauth:
        scene.through(oauth.uri, credential=oauth.credential)
        scene.fill("source", numbered(0, 100))
        run = scene.start(copy(scene))
        scene.wait_for("batch")
        issued = oauth.issued
        if way == "revoked":
            oauth.revoke()
        else:
            oauth.stop()
        scene.wait_for("waiting")
        if way == "away":
            time.sleep(AWAY)
            oauth.start()
        scene.fill("source", numbered(100, 200))
        ends(scene, run, 2)
        assert oauth.issued > issued
        assert "helios-client-secret" not in repr(scene.events)


@pytest.mark.landing
def test_a_wrong_credential_fails_at_once(scene: Any) -> None:
    scene.fill("source", numbered(0, 100))
    with OAuthProxy(scene.server.uri) as oauth:
        scene.through(oauth.uri, credential=oauth.credential)
        made = copy(scene)
        plan = scene.plan(made)
        oauth.client_secret = "another"
        run = scene.start(made, plan=plan)
        with pytest.raises(RunError, match="NotAuthorized"):
            run.await_termination(60)
        assert "waiting" not in scene.kinds()


# replicas


@pytest.mark.promise("replicas")
@pytest.mark.landing
def test_a_run_goes_on_at_the_next_replica(scene: Any) -> None:
    with Rest(scene.server.warehouse, database=scene.server.database) as second:
        scene.through(scene.proxy.uri, second.uri)
        scene.fill("source", numbered(0, 100))
        run = scene.start(copy(scene))
        scene.wait_for("batch")
        scene.proxy.stop()
        assert scene.wait_for("waiting").message.endswith(f"trying {second.uri}")
        scene.fill("source", numbered(100, 200))
        ends(scene, run, 2)
        seen = json.loads((scene.folder / "checkpoint" / "helios" / "seen.json").read_text())
        assert set(seen["prod"]) == {scene.named("source"), scene.named("target")}


@contextmanager
def overtaken(scene: Any) -> Iterator[tuple[Any, Rest]]:
    """A run, and a second replica as the first one was before the last commits to source and target."""
    scene.fill("source", numbered(0, 100))
    with Rest(scene.server.warehouse, database=scene.folder / "old.db") as second:
        second.stop()
        scene.through(scene.proxy.uri, second.uri)
        run = scene.start(copy(scene, outage=60))
        scene.wait_for("batch")
        shutil.copy(scene.server.database, second.database)
        scene.fill("source", numbered(100, 200))
        scene.wait_for("batch", times=2)
        second.start()
        yield run, second


@pytest.mark.parametrize("restarted", [False, True], ids=["within the run", "by a new run"])
@pytest.mark.promise("replicas")
@pytest.mark.cases(landing="by a new run")
def test_no_run_goes_on_at_a_replica_that_shows_less(scene: Any, restarted: bool, monkeypatch: Any) -> None:
    with overtaken(scene) as (run, second):
        if restarted:
            run.stop()
            assert run.await_termination(60)
            monkeypatch.setattr("helios.spark.iceberg.freshness.FRESHNESS", {})  # as in another process
        scene.proxy.stop()
        after = scene.start(copy(scene, outage=60)) if restarted else run
        at = len(scene.events)
        scene.wait_for("waiting", matching="shows prod.", after=0 if restarted else at - 2)
        assert after.active
        scene.proxy.start()
        scene.fill("source", numbered(200, 300))
        ends(scene, after, 3)
        old = Catalog.rest("prod", uri=second.uri, warehouse=scene.server.warehouse)
        assert len(old.load(scene.named("target")).snapshots()) == 1


@pytest.mark.promise("replicas")
def test_a_replica_that_lags_is_taken_when_it_has_caught_up(scene: Any) -> None:
    with overtaken(scene) as (run, second):
        scene.proxy.stop()
        scene.wait_for("waiting", matching="shows prod.")
        second.stop()
        shutil.copy(scene.server.database, second.database)
        second.start()
        scene.wait_for("resumed")
        run.stop()
        assert run.await_termination(60)
        assert scene.rows("target") == Counter(numbered(0, 200))


@pytest.mark.promise("replicas")
def test_a_run_whose_replicas_all_show_less_fails_with_the_fix(scene: Any) -> None:
    scene.fill("source", numbered(0, 100))
    database = scene.folder / "old.db"
    with Rest(scene.server.warehouse, database=database) as second:
        second.stop()
        shutil.copy(scene.server.database, database)
        second.start()
        scene.through(scene.proxy.uri, second.uri)
        run = scene.start(copy(scene, outage=3))
        scene.wait_for("batch")
        scene.proxy.stop()
        with pytest.raises(RunError, match=r"away since .* longer than the 3 s .*: this pipeline has seen") as failed:
            run.await_termination(60)
        assert "helios doctor --catalog prod" in str(failed.value.fix)


# with processes of their own


def outage(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(COMMAND), "--folder", str(tmp_path), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (told["lost"], told["doubled"], told["status"]) == (0, 0, 0)
    assert told["commits"] > 1
    return told


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("rest")
@pytest.mark.promise("kills")
def test_helios_run_goes_on_after_an_outage_and_a_kill_within_it(tmp_path: Path) -> None:
    told = outage(tmp_path, "--seconds", "20", "--kill", "--mode", "upsert")
    assert told["told_away_after"] is not None


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("rest")
@pytest.mark.slow
def test_a_token_that_expires_every_few_seconds_is_renewed(tmp_path: Path) -> None:
    told = outage(tmp_path, "--service", "token", "--seconds", "10")
    assert told["tokens"] >= 3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("rest")
@pytest.mark.parametrize("service", ["catalog", "storage", "replica"])
def test_a_minute_without_a_service(tmp_path: Path, service: str) -> None:
    with named_skip():
        MINIO.find()
    told = outage(tmp_path, "--service", service, "--seconds", "60")
    # Of a storage the clients, and the catalog's own, try for so long that the run may hear of nothing.
    assert told["told_away_after"] is not None or service == "storage"
