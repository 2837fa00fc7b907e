"""The proxies in front of a real REST catalog: what passes unchanged, and what each fault does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import OAuthError, UnauthorizedError

from tests.services.oauth import OAuthProxy
from tests.services.proxy import (
    Fault,
    FaultProxy,
    answer_after,
    answer_before,
    delay,
    drop_after,
    drop_before,
)
from tests.services.rest import Rest

pytestmark = [pytest.mark.promise("gateways"), pytest.mark.sampled(1)]

ROW = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture
def proxy(rest: Rest) -> Iterator[FaultProxy]:
    with FaultProxy(rest.uri) as proxy:
        yield proxy


@pytest.fixture
def table(proxy: FaultProxy) -> tuple[Catalog, str]:
    catalog = load_catalog("proxied", type="rest", uri=proxy.uri)
    catalog.create_namespace_if_not_exists("proxied")
    name = f"proxied.t{time.time_ns()}"
    catalog.create_table(name, schema=ROW.schema)
    return catalog, name


def count(catalog: Catalog, name: str) -> int:
    return int(catalog.load_table(name).scan().to_arrow().num_rows)


@pytest.mark.parametrize(
    ("fault", "rows"),
    [(answer_after(503), 1), (answer_after(500), 1), (drop_after(), 1), (answer_before(503), 0), (drop_before(), 0)],
)
@pytest.mark.cases(landing="fault0-1")
def test_a_fault_befalls_one_commit_before_or_after_it_is_applied(
    fault: Fault, rows: int, proxy: FaultProxy, table: tuple[Catalog, str]
) -> None:
    catalog, name = table
    target = catalog.load_table(name)
    rule = proxy.fail(fault, method="POST", path=r"/tables/t\d+$", times=1)
    with pytest.raises(Exception, match=r"a fault that a test asked for|Connection aborted"):
        target.append(ROW)
    assert (rule.hits, rule.done.is_set()) == (1, True)
    assert count(catalog, name) == rows
    catalog.load_table(name).append(ROW)
    assert count(catalog, name) == rows + 1
    befallen = [exchange for exchange in proxy.exchanges if exchange.fault]
    assert [(e.method, e.status) for e in befallen] == [("POST", 200 if rows else None)]


def test_a_delay_only_delays(proxy: FaultProxy) -> None:
    proxy.fail(delay(0.3), times=1)
    begun = time.monotonic()
    assert requests.get(f"{proxy.uri}/v1/namespaces", timeout=5).status_code == 200
    assert time.monotonic() - begun >= 0.3


def test_rules_are_tried_in_order_until_used_up_or_healed(proxy: FaultProxy) -> None:
    proxy.fail(answer_before(500), times=2)
    proxy.fail(answer_before(503), when=lambda request: request.header("X-Unlucky") == "yes")
    url = f"{proxy.uri}/v1/namespaces"
    unlucky = {"X-Unlucky": "yes"}
    seen = [requests.get(url, headers=headers, timeout=5).status_code for headers in ({}, unlucky, unlucky, {})]
    assert seen == [500, 500, 503, 200]
    proxy.heal()
    assert requests.get(url, headers=unlucky, timeout=5).status_code == 200


def test_bodies_pass_chunked_and_compressed(rest: Rest, proxy: FaultProxy) -> None:
    plain = requests.get(f"{rest.uri}/v1/config", headers={"Accept-Encoding": "identity"}, timeout=5)
    packed = requests.get(f"{proxy.uri}/v1/config", headers={"Accept-Encoding": "gzip"}, timeout=5)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.json() == plain.json()
    name = f"chunked{time.time_ns()}"
    parts = iter([b'{"namespace":', f'["{name}"]}}'.encode()])
    made = requests.post(
        f"{proxy.uri}/v1/namespaces", data=parts, headers={"Content-Type": "application/json"}, timeout=5
    )
    assert made.json()["namespace"] == [name]
    assert requests.head(f"{proxy.uri}/v1/namespaces/{name}", timeout=5).status_code == 204


def test_one_connection_serves_many_requests_and_many_clients_are_counted(proxy: FaultProxy) -> None:
    rule = proxy.fail(answer_before(503), times=40)

    def ask(_: int) -> list[int]:
        with requests.Session() as session:
            return [session.get(f"{proxy.uri}/v1/namespaces", timeout=30).status_code for _ in range(10)]

    with ThreadPoolExecutor(16) as clients:
        seen = Counter(status for answers in clients.map(ask, range(16)) for status in answers)
    assert seen == {503: 40, 200: 120}
    assert (rule.hits, len(proxy.exchanges)) == (40, 160)


def test_a_stopped_proxy_refuses_and_drops_then_serves_again_on_its_port(proxy: FaultProxy) -> None:
    url = f"{proxy.uri}/v1/namespaces"
    rule = proxy.fail(delay(0.5), times=1)
    with requests.Session() as session, ThreadPoolExecutor(1) as other:
        waiting = other.submit(requests.get, url, timeout=10)
        until = time.monotonic() + 5
        while not rule.hits:
            assert time.monotonic() < until
            time.sleep(0.01)
        proxy.stop()
        with pytest.raises(requests.ConnectionError):
            waiting.result()
        with pytest.raises(requests.ConnectionError):
            session.get(url, timeout=5)
        proxy.start()
        assert session.get(url, timeout=5).status_code == 200


def test_a_server_that_is_away_is_a_502(rest: Rest) -> None:
    with FaultProxy("http://127.0.0.1:1") as proxy:
        answer = requests.get(proxy.uri, timeout=5)
        assert (answer.status_code, "ConnectionRefusedError" in answer.text) == (502, True)


@pytest.mark.landing
def test_a_token_is_asked_for_issued_and_renewed(rest: Rest) -> None:
    with OAuthProxy(rest.uri) as proxy:
        assert requests.get(f"{proxy.uri}/v1/config", timeout=5).status_code == 401
        options = {"uri": proxy.uri, "credential": proxy.credential, "scope": proxy.scope}
        own = {**options, "oauth2-server-uri": f"{proxy.uri}/v1/oauth/tokens"}
        catalog = load_catalog("x", type="rest", **own)
        catalog.list_namespaces()
        issued = proxy.issued
        proxy.revoke()
        catalog.list_namespaces()
        assert proxy.issued > issued
        elsewhere = {**options, "oauth2-server-uri": proxy.oauth2_server_uri}
        load_catalog("y", type="rest", **elsewhere).list_namespaces()
        load_catalog("z", type="rest", uri=proxy.uri, token=proxy.token()).list_namespaces()


def test_a_token_expires(rest: Rest) -> None:
    with OAuthProxy(rest.uri, expires_in=0) as proxy:
        bearer = {"Authorization": f"Bearer {proxy.token()}"}
        assert requests.get(f"{proxy.uri}/v1/namespaces", headers=bearer, timeout=5).status_code == 401


def test_wrong_credentials_scopes_and_tokens_are_refused(rest: Rest) -> None:
    with OAuthProxy(rest.uri) as proxy:
        options = {"uri": proxy.uri, "oauth2-server-uri": proxy.oauth2_server_uri}
        with pytest.raises(OAuthError, match="invalid_client"):
            load_catalog("x", type="rest", **options, credential="helios:wrong")
        with pytest.raises(OAuthError, match="invalid_scope"):
            load_catalog("x", type="rest", **options, credential=proxy.credential, scope="other")
        catalog = load_catalog("x", type="rest", uri=proxy.uri, token=proxy.token())
        proxy.revoke()
        with pytest.raises(UnauthorizedError, match="expired or is unknown"):
            catalog.list_namespaces()


def test_a_token_is_exchanged_as_the_java_client_does(rest: Rest) -> None:
    with OAuthProxy(rest.uri) as proxy:
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": proxy.token(),
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "scope": proxy.scope,
        }
        url, client = f"{proxy.uri}/v1/oauth/tokens", (proxy.client_id, proxy.client_secret)
        answer = requests.post(url, data=form, auth=client, timeout=5).json()
        bearer = {"Authorization": f"Bearer {answer['access_token']}"}
        assert requests.get(f"{proxy.uri}/v1/namespaces", headers=bearer, timeout=5).status_code == 200
        stale = requests.post(url, data={**form, "subject_token": "stale"}, auth=client, timeout=5)
        assert (stale.status_code, stale.json()["error"]) == (400, "invalid_grant")
        unknown = requests.post(url, data=form, timeout=5)
        assert (unknown.status_code, unknown.json()["error"]) == (401, "invalid_client")
