"""`helios run --ui` as a process: the page tells the batches, and ends the run behind them."""

from __future__ import annotations

import json
import re
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_cli import following, rows

pytestmark = [pytest.mark.promise("page"), pytest.mark.landing]

SCRIPT = """
from pathlib import Path
from helios import Files, Iceberg, expect

orders = (
    Files.source(f"{Path(__file__).parent / 'data'}", "csv", schema="id bigint, amount bigint")
    .incremental(poll="1s")
    >> expect({"positive": "amount > 0"}, on_fail="quarantine")
    >> Iceberg.sink("shop.orders").quarantine("shop.odd").exactly_once()
)
"""


def asked(address: str, path: str, method: str = "GET", token: str = "") -> tuple[int, Any]:
    connection = HTTPConnection(address, timeout=120)
    connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    text = answer.read()
    return answer.status, json.loads(text) if answer.status < 400 else None


def test_a_run_is_watched_and_stopped_from_its_page(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("id,amount\n1,5\n2,-1\n3,7\n")
    (tmp_path / "p.py").write_text(SCRIPT)
    (tmp_path / "helios.toml").write_text('[spark]\nmaster = "local[2]"\n')
    with following(tmp_path, "p.py", "--ui", ":0") as process:
        assert process.stdout is not None
        found = next(
            found for line in process.stdout if (found := re.search(r"page at http://([\d.:]+)/#token=(\S+)", line))
        )
        address, token = found.groups()
        connection = HTTPConnection(address, timeout=120)
        connection.request("GET", "/events")
        stream = connection.getresponse()
        told: dict[str, Any] = {}
        batch = None
        while batch is None or told["pipeline/local.shop.orders"]["rows"] == 0:
            line = stream.readline()
            if line.startswith(b"data: "):
                event = json.loads(line.removeprefix(b"data: "))
                told |= event["set"]
                batch = next((one for one in event["new"] if one["kind"] == "batch"), batch)
        assert (batch["rows"], batch["rejected"], batch["batch"]) == (2, 1, 0)
        assert 0 < batch["writing"] + batch["committing"] < batch["seconds"]
        assert [node["kind"] for node in told["graph"]["nodes"]] == ["source", "step", "sink"]
        page = f"table=local.shop.orders&snapshot={batch['snapshot']}"
        _, made = asked(address, f"/api/batch?{page}")
        assert made["expectations"] == [
            {"step": "expect(positive=amount > 0, on_fail=quarantine)", "on_fail": "quarantine"}
        ]
        assert (made["added"], made["read"][0]["source"]) == (2, str(tmp_path / "data"))
        _, counted = asked(address, f"/api/rejects?{page}")
        _, samples = asked(address, f"/api/rejects?{page}", token=token)
        [group] = counted["quarantines"][0]["groups"]
        assert (group["rows"], counted["quarantines"][0]["rows"]) == (1, [])
        assert json.loads(samples["quarantines"][0]["rows"][0]["payload"])["id"] == 2
        assert asked(address, "/api/stop", "POST", "wrong" * 4)[0] == 401
        assert asked(address, "/api/stop", "POST", token) == (202, {"stopping": True})
        process.stdout.read()
        assert process.wait(120) == 0
    assert {row["id"] for row in rows(tmp_path, "shop.orders")} == {1, 3}
