"""Signed webhooks from many connections, the receiver and the run killed: prints lost and doubled deliveries.

    python perf/webhooks.py --deliveries 100000 --connections 50 --kills 10

`helios webhook` receives and `helios run` follows; both are killed with `kill -9` at random moments and started again,
the run only after it has committed something. `--rate` leaves it a processor on a small machine.
Each sender repeats a delivery, with its id, until it is answered with 200. One in fifty is sent once more after that,
and one in fifty is replayed as it was, byte by byte. Beside them come deliveries that must be refused, one in twenty:
unsigned, forged, stale, of the future, and replayed under another id. At the end every id is counted in the table: each
that was answered with 200 must be there once, and no other.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import http.client
import json
import math
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helios import Catalog

KEY = b"a key of the measurement"
SCRIPT = """
from helios import Iceberg, Webhook
orders = (
    Webhook.source("/orders", secret="whsec_{secret}", schema="id bigint NOT NULL, text string")
    .listen("127.0.0.1:{port}").segments("{folder}/segments")
    >> Iceberg.sink("hooks.orders").exactly_once()
)
"""


@dataclass
class Sent:
    """What the senders saw; each has a lock around it."""

    numbers: Iterator[int]
    rate: float = math.inf
    accepted: set[int] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)
    bad: dict[str, Counter[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    def next(self) -> int | None:
        """The number of the next delivery, when it is due; None after the last one."""
        with self.lock:
            number = next(self.numbers, None)
        if number is not None:
            time.sleep(max(0.0, self._began + number / self.rate - time.monotonic()))
        return number

    def note(self, answer: str, kind: str | None) -> None:
        with self.lock:
            (self.answers if kind is None else self.bad.setdefault(kind, Counter()))[answer] += 1

    def accept(self, number: int) -> None:
        with self.lock:
            self.accepted.add(number)


def signed(number: int, body: bytes, key: bytes = KEY, age: int = 0) -> dict[str, str]:
    """The headers of a delivery."""
    at = int(time.time()) - age
    digest = hmac.digest(key, f"d{number}.{at}.".encode() + body, hashlib.sha256)
    return {
        "content-type": "application/json",
        "webhook-id": f"d{number}",
        "webhook-timestamp": str(at),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def unsigned(number: int, body: bytes) -> dict[str, str]:
    headers = signed(number, body)
    del headers["webhook-signature"]
    return headers


def under_another_id(number: int, body: bytes) -> dict[str, str]:
    return {**signed(-number, body), "webhook-id": f"d{number}"}


BAD: dict[str, Callable[[int, bytes], dict[str, str]]] = {
    "unsigned": unsigned,
    "forged": lambda number, body: signed(number, body, key=b"forged"),
    "stale": lambda number, body: signed(number, body, age=400),
    "of the future": lambda number, body: signed(number, body, age=-400),
    "under another id": under_another_id,
}
"""What must be refused: the headers of a delivery."""


class Sender:
    """One connection.

    Args:
        port: The receiver's port.
        sent: What all senders saw.
        seed: Of its random choices.
    """

    def __init__(self, port: int, sent: Sent, seed: int) -> None:
        self._port = port
        self._sent = sent
        self._random = random.Random(seed)
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        """Sends until no number is left."""
        while (number := self._sent.next()) is not None:
            body = json.dumps({"id": number, "text": "x" * self._random.randrange(400)}).encode()
            if self._random.random() < 0.05:
                self._bad(-1 - number)
            headers = signed(number, body)
            while self._post(body, headers) != 200:
                time.sleep(0.05)
                headers = signed(number, body)
            self._sent.accept(number)
            if self._random.random() < 0.02:
                self._post(body, signed(number, body))
            if self._random.random() < 0.02:
                self._post(body, headers)

    def _bad(self, number: int) -> None:
        """A delivery that must be refused, under a number that no good one has."""
        body = json.dumps({"id": number, "text": "bad"}).encode()
        kind = self._random.choice(list(BAD))
        self._post(body, BAD[kind](number, body), kind)

    def _post(self, body: bytes, headers: Mapping[str, str], kind: str | None = None) -> int | None:
        """The status; None if the connection broke."""
        try:
            self._connection = self._connection or http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            self._connection.request("POST", "/orders", body, dict(headers))
            answer = self._connection.getresponse()
            status = json.loads(answer.read()).get("status", "")
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._sent.note(type(error).__name__, kind)
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return None
        self._sent.note(f"{answer.status} {status}".strip(), kind)
        return answer.status


def commits(folder: Path) -> int:
    """How often a run has committed."""
    catalog = Catalog.local(path=folder / ".helios")
    return len(catalog.load("hooks.orders").snapshots()) if catalog.exists("hooks.orders") else 0


def measure(folder: Path, given: argparse.Namespace) -> dict[str, object]:
    """Sends, kills and counts."""
    deliveries, kills = given.deliveries, given.kills
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    secret = base64.b64encode(KEY).decode()
    (folder / "hooks.py").write_text(SCRIPT.format(secret=secret, port=port, folder=folder))
    helios = [sys.executable, "-m", "helios"]
    commands = {"receiver": [*helios, "webhook", "hooks.py"], "run": [*helios, "run", "hooks.py"]}
    logs = {name: (folder / f"{name}.log").open("w") for name in commands}

    def start(name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(commands[name], cwd=folder, stdout=logs[name], stderr=subprocess.STDOUT)

    receiver = start("receiver")
    _until_it_answers(port)  # else the run would receive
    running = {"receiver": receiver, "run": start("run")}
    sent, chosen = Sent(iter(range(deliveries)), given.rate), random.Random(given.seed)
    senders = [threading.Thread(target=Sender(port, sent, given.seed + n).run) for n in range(given.connections)]
    committed, killed = 0, Counter[str]()
    began = time.monotonic()
    for sender in senders:
        sender.start()
    for kill in range(kills):
        while len(sent.accepted) < deliveries * (kill + 1) // (kills + 1):
            time.sleep(0.05)
        name = "run" if kill % 3 == 2 else "receiver"
        while name == "run" and commits(folder) <= committed and len(sent.accepted) < deliveries:
            time.sleep(0.2)
        time.sleep(chosen.random())
        killed[name + ("" if name == "receiver" or commits(folder) > committed else " before its first commit")] += 1
        committed = commits(folder) if name == "run" else committed
        running[name].send_signal(signal.SIGKILL)
        running[name].wait()
        running[name] = start(name)
    for sender in senders:
        sender.join()
    seconds = time.monotonic() - began
    for process in running.values():
        process.send_signal(signal.SIGTERM)
    statuses = {name: process.wait(120) for name, process in running.items()}
    subprocess.run([*commands["run"], "--once"], cwd=folder, check=True, stdout=logs["run"], stderr=subprocess.STDOUT)
    ids = Catalog.local(path=folder / ".helios").load("hooks.orders").iceberg.scan(selected_fields=("id",)).to_arrow()
    found = Counter(ids["id"].to_pylist())
    return {
        "deliveries": deliveries,
        "kills": dict(killed),
        "commits": commits(folder),
        "accepted": len(sent.accepted),
        "lost": len(sent.accepted - set(found)),
        "doubled": sum(1 for times in found.values() if times > 1),
        "not_accepted": len(set(found) - sent.accepted),
        "bad_accepted": sum(n for answers in sent.bad.values() for what, n in answers.items() if what.startswith("2")),
        "per_second": round(deliveries / seconds),
        "answers": dict(sent.answers.most_common()),
        "bad": {kind: dict(answers) for kind, answers in sorted(sent.bad.items())},
        "statuses": statuses,
    }


def _until_it_answers(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the receiver does not answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deliveries", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=float, default=math.inf, help="deliveries a second at the most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        told = measure(folder, given)
    print(json.dumps(told))
    sys.exit(any(told[what] for what in ("lost", "doubled", "not_accepted", "bad_accepted")))


if __name__ == "__main__":
    main()
