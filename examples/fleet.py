"""Where each plane was last seen: an upsert that follows a table, with deletes.

It follows `nyc.flights`, which examples/flights.py writes: run that first, then `helios run examples/fleet.py --once`.
The newest flight of a plane wins, whatever the order in which flights arrive. A cancelled one takes its plane off the
board, and older flights that come later do not bring it back.
"""

from helios import Iceberg, param, select, where

fleet = (
    Iceberg.source("nyc.flights").incremental(poll=param("poll", "10s"))
    >> where("tailnum IS NOT NULL")
    # The order is remembered beside the table, which holds `seen` of it alone; `cancelled` only the deletes name.
    >> select("tailnum", "airline", "dest", "time_hour AS seen", "time_hour", "minute", "flight", "cancelled")
    >> Iceberg.sink("nyc.fleet")
    .maintain(expire="5d")
    .upsert("tailnum", order_by="struct(time_hour, minute, flight)", delete_when="cancelled", store_order=False)
    .exactly_once()
)
