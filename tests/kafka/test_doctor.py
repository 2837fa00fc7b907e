"""`helios doctor` looks at brokers, topics and the registry of a script's sources."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.kafka.conftest import Topics, numbered
from tests.kafka.registry import Registry
from tests.services.server import Port

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("doctor-servers")]


def seen(folder: Path, script: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status of the doctor, and its checks by name."""
    (folder / "pipeline.py").write_text(f"from helios import Iceberg, Kafka\n{dedent(script)}")
    command = [sys.executable, "-m", "helios", "doctor", "pipeline.py", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=200)
    assert done.stdout, done.stderr
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


@pytest.mark.landing
def test_brokers_topics_and_the_registry(topics: Topics, tmp_path: Path) -> None:
    name = topics.make(partitions=2)
    topics.send(name, numbered(0, 7))
    topics.purge(name, 3)
    servers, registry = topics.broker.servers, Registry()
    id = registry.register(f"{name}-value", {"type": "record", "name": "A", "fields": [{"name": "id", "type": "int"}]})
    try:
        status, checks = seen(
            tmp_path,
            f"""
            good = Kafka.source("{name}").servers("{servers}").value("avro", registry="{registry.url}")
            wrong = Kafka.source("{name}x").servers("{servers}")
            several = Kafka.source(pattern="{name}.*").servers("{servers}")
            pipelines = [
                (source >> Iceberg.sink("a.t")).named(f"p{{number}}")
                for number, source in enumerate((good, wrong, several))
            ]
            """,
        )
    finally:
        registry.stop()
    assert status == 1
    assert [one["name"] for one in checks.values() if one["ok"] is False] == [f"topic {name}x"]
    assert checks[f"broker {servers}"]["ok"]
    assert checks[f"topic {name}"]["detail"] == "2 partitions, offsets 3 to 7, 0 to 0 (4 in all)"
    assert checks[f"topic {name}"]["milliseconds"] > 0
    assert f"topic '{name}x' does not exist on {servers}. Did you mean" in checks[f"topic {name}x"]["detail"]
    assert name in checks[f"topics /{name}.*/"]["detail"]
    assert checks["schema registry"]["detail"] == f"{name}-value: version 1, id {id}"


def test_brokers_and_a_registry_that_are_away(tmp_path: Path) -> None:
    port = Port()
    away = f"127.0.0.1:{port.number}"
    status, checks = seen(
        tmp_path,
        f"""
        source = Kafka.source("orders").servers("{away}").value("avro", registry="http://{away}")
        pipeline = source >> Iceberg.sink("a.t")
        """,
    )
    port.release()
    assert status == 1
    assert "refused" in checks[f"broker {away}"]["detail"]
    assert "refused" in checks["schema registry"]["detail"]
    assert (checks["topic orders"]["ok"], checks["topic orders"]["detail"]) == (
        None,
        f"not checked: broker {away} does not answer",
    )
