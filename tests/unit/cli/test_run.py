"""What `helios run` settles before it starts Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

from helios.metrics.endpoint import Endpoint

pytestmark = pytest.mark.promise("commands")

Run = Callable[..., Result]


@pytest.fixture
def project(cli: Run) -> None:
    cli("init")


@pytest.mark.usefixtures("project")
def test_a_metrics_port_that_is_in_use_stops_the_run_before_it_begins(cli: Run) -> None:
    with Endpoint([]) as taken:
        shown = cli("run", "pipeline.py", "--once", "--metrics-port", str(taken.port))
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert f"port {taken.port} of 127.0.0.1" in shown.stderr
    assert "Fix: pass another port, or 0 for a free one." in shown.stderr


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
@pytest.mark.usefixtures("project")
def test_a_metrics_port_that_cannot_be_is_a_usage_error(port: str, cli: Run) -> None:
    shown = cli("run", "pipeline.py", "--metrics-port", port)
    assert shown.exit_code == 2
    assert "--metrics-port" in shown.stderr


@pytest.mark.usefixtures("project")
def test_a_host_without_a_port_is_a_usage_error(cli: Run) -> None:
    shown = cli("run", "pipeline.py", "--metrics-host", "0.0.0.0")
    assert shown.exit_code == 2
    assert "--metrics-host needs --metrics-port" in shown.stderr


@pytest.mark.usefixtures("project")
def test_a_metrics_host_that_is_not_this_machine_stops_the_run_before_it_begins(cli: Run) -> None:
    shown = cli("run", "pipeline.py", "--once", "--metrics-port", "0", "--metrics-host", "192.0.2.1")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "port 0 of 192.0.2.1" in shown.stderr
    assert "Fix: pass another port, or 0 for a free one, and an address of this machine as the host." in shown.stderr


def test_metrics_are_served_on_the_host_that_is_given() -> None:
    with Endpoint([], host="::1") as endpoint:
        assert endpoint.url == f"http://[::1]:{endpoint.port}"
