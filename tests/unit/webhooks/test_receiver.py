"""The answers over real HTTP, and what is stored behind them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from helios import Webhook
from helios.errors import RunError
from helios.sources.webhook import receiver
from helios.sources.webhook.declare import WebhookSource
from helios.sources.webhook.receiving import receiving
from helios.sources.webhook.segments import Segments

pytestmark = pytest.mark.promise("webhook")

KEY = b"helios-key"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def source(folder: Path) -> WebhookSource:
    made = Webhook.source("/orders", secret=SECRET, schema="id bigint NOT NULL, name string")
    return made.listen("127.0.0.1:0").segments(str(folder)).limits(body=1000)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with receiving([source(tmp_path)]) as (url,):
        yield url


def post(url: str, body: bytes, delivery: str = "m1", *, age: int = 0, **headers: str) -> tuple[int, dict[str, Any]]:
    at = int(time.time()) - age
    digest = hmac.digest(KEY, f"{delivery}.{at}.".encode() + body, hashlib.sha256)
    given = {
        "content-type": "application/json; charset=utf-8",
        "webhook-id": delivery,
        "webhook-timestamp": str(at),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    connection.request("POST", parts.path, body, given)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found


def ids(folder: Path) -> Counter[int]:
    files = sorted(file for file in folder.glob("*.json") if not file.name.startswith("."))
    return Counter(json.loads(line)["id"] for file in files for line in file.read_text().splitlines())


def test_the_answers(url: str) -> None:
    good = b'{"id": 1}'
    assert post(url, good) == (200, {"status": "accepted"})
    assert post(url, good) == (200, {"status": "duplicate"})
    assert post(url, good, webhook_signature="v1,AAAA")[0] == 401
    assert post(url, good, "m2", age=301)[0] == 401
    assert post(url, b'{"id": 1, "name": "%s"}' % (b"x" * 1000), "m3")[0] == 413
    assert post(url, good, "m4", content_type="text/plain")[0] == 415
    assert post(url, b'{"id": "one"}', "m5") == (422, {"error": 'id is not of type bigint: "one"'})
    assert post(url.replace("/orders", "/order"), good, "m6")[0] == 503  # it may be opened yet
    assert post(url, good, "m" * 300)[0] == 422


def test_an_unknown_path(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "STARTUP_SECONDS", 0)
    assert post(url.replace("/orders", "/order"), b"{}")[0] == 404


def test_each_acknowledged_delivery_is_stored_once(tmp_path: Path) -> None:
    with receiving([source(tmp_path)]) as (url,), ThreadPoolExecutor(8) as pool:
        sent = [number for number in range(100) for _ in range(2)]
        answers = list(pool.map(lambda n: post(url, b'{"id": %d}' % n, f"m{n}")[1]["status"], sent))
    assert Counter(answers) == {"accepted": 100, "duplicate": 100}
    assert ids(tmp_path) == Counter(range(100))
    with receiving([source(tmp_path)]) as (url,):  # another one still knows them
        assert post(url, b'{"id": 7}', "m7") == (200, {"status": "duplicate"})


def test_more_than_may_wait(tmp_path: Path) -> None:
    with receiving([source(tmp_path).limits(waiting=20)]) as (url,):
        assert post(url, b'{"id": 1}')[0] == 200
        deadline = time.monotonic() + 10
        while (answer := post(url, b'{"id": 2}', f"w{time.monotonic()}"))[0] == 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert answer == (429, {"error": "too many deliveries wait; send it again later"})


def test_after_an_unknown_error_nothing_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, lines: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(receiver, "RETRY_SECONDS", 0.05)
    with receiving([source(tmp_path)]) as (url,):
        with monkeypatch.context() as patched:
            patched.setattr(Segments, "append", broken)
            assert post(url, b'{"id": 1}')[0] >= 500
        time.sleep(0.5)  # several checks of the disk, which works
        assert post(url, b'{"id": 2}', "m2") == (503, {"error": "the receiver cannot write"})
    assert ids(tmp_path) == Counter()


def test_a_second_receiver_leaves_it_to_the_first_or_is_refused(tmp_path: Path, url: str) -> None:
    with receiving([source(tmp_path)]) as urls:
        assert urls == []
    with pytest.raises(RunError, match="another receiver writes"), receiving([source(tmp_path)], alone=True):
        pass


def test_sources_of_one_address_share_a_server(tmp_path: Path) -> None:
    one = source(tmp_path / "a").listen("127.0.0.1:0")
    other = Webhook.source("/any", secret=SECRET).listen("127.0.0.1:0").segments(str(tmp_path / "b"))
    with receiving([one, other]) as urls:
        assert [urlsplit(url).path for url in urls] == ["/orders", "/any"]
        assert len({urlsplit(url).netloc for url in urls}) == 1
        assert post(urls[1], b"[1, 2]") == (200, {"status": "accepted"})
    stored = next((tmp_path / "b").glob("[0-9]*.json"))
    assert json.loads(stored.read_text())["body"] == [1, 2]


def test_two_sources_of_one_path_are_refused(tmp_path: Path) -> None:
    one, other = source(tmp_path / "a"), source(tmp_path / "b")
    with receiving([one]) as (url,):
        with pytest.raises(RunError, match="/orders takes the deliveries of another source"), receiving([other]):
            pass
        assert post(url, b'{"id": 1}')[0] == 200
    assert ids(tmp_path / "a") == {1: 1}
    with receiving([other]) as (url,):  # its segments are free
        assert post(url, b'{"id": 1}')[0] == 200
