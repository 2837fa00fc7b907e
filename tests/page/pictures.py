"""Makes the pictures of docs/live-page.md: `python -m tests.page.pictures docs/images`, about two minutes.

It runs three pipelines over files that keep arriving, and photographs their page.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.page.chromium import Chromium, chromium

PIPELINE = """
from helios import Files, Iceberg, aggregate, expect, where, with_columns

orders = (
    Files.source("data", "csv", schema="id long, customer string, amount decimal(10,2), ts timestamp")
    .incremental(poll=2, max_files=3)
    >> expect({"positive": "amount > 0", "named": "customer IS NOT NULL"}, on_fail="quarantine")
    >> expect({"small": "amount < 10000"}, on_fail="drop")
    >> Iceberg.sink("shop.orders").maintain(compact="128MB", expire="7d").quarantine("shop.odd")
)
big = (
    Iceberg.source("shop.orders").incremental(poll=2)
    >> where("amount > 50")
    >> with_columns(vip="amount > 90")
    >> Iceberg.sink("shop.big_orders").append().exactly_once()
)
customers = (
    Iceberg.source("shop.orders").incremental(poll=2)
    >> aggregate("customer", orders="count(*)", amount="sum(amount)")
    >> Iceberg.sink("shop.customers").upsert("customer").exactly_once()
)
"""
NAMES = ("ana", "bob", "cid", "dan", "eve")
BATCHES = 20
PATIENCE = 600.0
SHORTEST = """const range = document.querySelector('select'); if (!range) return;
    range.selectedIndex = 0; range.dispatchEvent(new Event('change'))"""
"""Shows the shortest range of the timeline."""


def write_orders(folder: Path, stop: threading.Event) -> None:
    """Writes a file of some hundred orders every two seconds; a few orders are bad."""
    chance, number = random.Random("orders"), 0
    while not stop.is_set():
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        lines = ["id,customer,amount,ts"]
        for _ in range(chance.randint(200, 700)):
            amount = chance.choices([f"{chance.randint(1, 9999) / 100:.2f}", "-1.00", "99999.00"], [980, 12, 8])[0]
            lines.append(f"{number},{chance.choice(NAMES)},{amount},{now}")
            number += 1
        part = folder / f".o{number}.csv.part"
        part.write_text("\n".join(lines) + "\n")
        part.rename(folder / f"o{number}.csv")
        stop.wait(2)


def photograph(page: Chromium, address: str, folder: Path) -> None:
    """Waits until each pipeline has committed some batches, and writes the pictures."""
    url, _, token = address.partition("#")
    page.go(f"{url}#{token}")
    page.until("return document.body.innerText.includes('local.shop.customers')", seconds=PATIENCE)
    page.go(f"{url}#/batches")
    enough = f"return [...document.querySelectorAll('a')].filter(a => a.textContent == 'batch {BATCHES}').length > 1"
    page.until(enough, seconds=PATIENCE)
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        for name, path, size in (("live-page", "#/", (1600, 560)), ("live-page-batches", "#/batches", (1280, 800))):
            page.go(url + path)
            page.sized(*size)
            page.run(SHORTEST)
            time.sleep(2)
            page.screenshot(folder / f"{name}-{scheme}.png")
    page.scheme("light")
    page.sized(1280, 1400)
    batch = """return [...document.querySelectorAll('tr')]
        .filter(row => /shop.orders/.test(row.textContent) && /batch [0-9]/.test(row.textContent))
        .map(row => [...row.querySelectorAll('a')].at(-1).getAttribute('href'))[0]"""
    page.go(f"{url}#/batches")
    page.go(url + str(page.until(batch)))
    page.until("return document.body.innerText.includes('positive (amount > 0)')")
    page.screenshot(folder / "live-page-batch-light.png")


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, stop = Path(name), threading.Event()
        (folder / "data").mkdir()
        (folder / "pipeline.py").write_text(PIPELINE)
        threading.Thread(target=write_orders, args=(folder / "data", stop), daemon=True).start()
        command = [sys.executable, "-m", "helios", "run", "pipeline.py", "--ui"]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            address = next(m.group(1) for line in run.stdout if (m := re.search(r"page at (\S+)", line)))
            threading.Thread(target=run.stdout.read, daemon=True).start()
            try:
                with chromium() as page:
                    photograph(page, address, target)
            finally:
                stop.set()
                run.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
