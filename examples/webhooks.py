"""Orders of a shop, by signed webhooks: all deliveries in one table, the orders as they are now in another.

`SHOP_SECRET=whsec_... helios run examples/webhooks.py` receives at http://127.0.0.1:8080/orders; without a secret it
takes deliveries of this machine alone. `helios webhook examples/webhooks.py:received` receives without Spark, between
two runs.
"""

import os
from pathlib import Path

from helios import Iceberg, Webhook, day, expect, param, with_columns

SEGMENTS = param("segments", str(Path(__file__).parent / "data" / "orders"))

received = (
    Webhook.source(
        "/orders",
        secret=os.environ.get("SHOP_SECRET"),
        schema="id bigint NOT NULL, status string, amount decimal(10,2), changed_at timestamp NOT NULL",
    )
    .listen(param("listen", "127.0.0.1:8080"))
    .segments(SEGMENTS)
    .with_metadata()
    >> expect({"status": "status IN ('open', 'paid', 'sent', 'cancelled')"}, on_fail="quarantine")
    >> Iceberg.sink("shop.deliveries").partition_by(day("changed_at")).quarantine("shop.odd_deliveries").exactly_once()
)

# One pipeline reads a webhook; others follow its table.
orders = (
    Iceberg.source("shop.deliveries").incremental(poll="5s")
    >> with_columns(gone="status = 'cancelled'")
    >> Iceberg.sink("shop.orders").upsert("id", order_by="changed_at", delete_when="gone")
)
