"""Brokers that are away, refuse, or come back; logins, and their secrets."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from helios import Kafka
from helios.errors import RunError
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.protocol import open_source
from helios.spark.jvm.classes import classes
from tests.kafka.conftest import Topics, numbered
from tests.services.server import Port
from tests.suite.waiting import until

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("kafka")]


@pytest.mark.landing
def test_a_login_over_tls_and_one_that_is_refused(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, numbered(0, 5))
    broker = topics.broker
    secure = Kafka.source(name).servers(broker.secure_servers).value("json", schema="id bigint").tls(broker.certificate)
    for mechanism in ("SCRAM-SHA-512", "PLAIN"):
        source = secure.sasl(mechanism, broker.user, broker.password)  # type: ignore[arg-type]
        pipeline = (source.incremental() >> world.sink("a.t")).named("secure")
        assert broker.password not in f"{world.plan(pipeline)} {world.plan(pipeline).to_json()} {source!r}"
        world.run(pipeline)
        assert world.ids("a.t") == list(range(5))
        rows = open_source(SourceContext(plan=world.plan(pipeline), spark=world.spark), 0).read(world.spark, None)
        assert rows is not None
        explain = classes().org.apache.spark.sql.api.python.PythonSQLUtils.explainString
        assert broker.password not in str(explain(rows._jdf.queryExecution(), "extended"))
    wrong = secure.sasl("SCRAM-SHA-512", broker.user, "not-that-one")
    with pytest.raises(RunError, match=r"refuse the login: .*invalid credentials") as refused:
        world.run((wrong >> world.sink("a.u")).named("wrong"))
    assert "not-that-one" not in str(refused.value)


def test_no_broker_at_an_address(world: Any, topics: Topics) -> None:
    port = Port()
    source = Kafka.source("t").servers(f"127.0.0.1:{port.number}").properties({"default.api.timeout.ms": "3000"})
    source = source.properties({"request.timeout.ms": "2000"})
    with pytest.raises(RunError, match=rf"no broker answers at 127.0.0.1:{port.number}"):
        world.run(source >> world.sink("a.t"))
    port.release()


def test_a_host_that_no_dns_knows(world: Any) -> None:
    source = Kafka.source("t").servers("broker.invalid:9092")
    with pytest.raises(
        RunError, match=r"none of the hosts in broker\.invalid:9092 can be resolved .*\.servers\(\.\.\.\), and the DNS"
    ):
        world.run(source >> world.sink("a.t"))


def test_a_run_goes_on_when_the_broker_comes_back(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, numbered(0, 5))
    source = topics.ids(name).properties({"default.api.timeout.ms": "4000", "request.timeout.ms": "2000"})
    run = world.start(source.incremental(poll=0.2) >> world.sink("a.t"))
    try:
        until(lambda: world.catalog.exists("a.t") and world.ids("a.t") == list(range(5)))
        topics.broker.kill()
        until(lambda: "waiting" in world.kinds() or run.error is not None)
        assert run.error is None
        topics.broker.start()
        sender = threading.Thread(target=topics.send, args=(name, numbered(5, 9)))
        sender.start()
        until(lambda: world.ids("a.t") == list(range(9)))
        sender.join()
    finally:
        run.stop()
        run.await_termination(60)
