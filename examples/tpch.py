"""TPC-H as a lakehouse: eight tables that follow their files, and two of its queries kept beside them.

Land the files with `python examples/land_tpch.py`, then `helios run examples/tpch.py --once`. Changes of orders and of
their lines arrive shuffled, doubled and late; each table has the newest row of every key, and no deleted one.
"""

from pathlib import Path

from helios import Files, Iceberg, aggregate, join, month, param, select, where

DATA = Path(param("data", str(Path(__file__).parent / "data" / "tpch")))

fixed = {
    name: Files.source(f"{DATA}/{name}", "parquet") >> Iceberg.sink(f"tpch.{name}")
    for name in ("region", "nation", "supplier", "customer", "part", "partsupp")
}
orders = (
    Files.source(f"{DATA}/orders", "parquet").incremental(poll="10s", max_files=4)
    >> Iceberg.sink("tpch.orders").upsert("o_orderkey", order_by="seq", delete_when="op = 'D'")
)  # fmt: skip
lineitem = Files.source(f"{DATA}/lineitem", "parquet").incremental(poll="10s", max_files=4) >> Iceberg.sink(
    "tpch.lineitem"
).partition_by(month("l_shipdate")).upsert("l_orderkey", "l_linenumber", order_by="seq", delete_when="op = 'D'")

# Query 1: what was shipped, by its state.
pricing = (
    Iceberg.source("tpch.lineitem")
    >> where("l_shipdate <= DATE '1998-09-02'")
    >> aggregate(
        ["l_returnflag", "l_linestatus"],
        quantity="sum(l_quantity)",
        price="sum(l_extendedprice)",
        discounted="sum(l_extendedprice * (1 - l_discount))",
        lines="count(*)",
    )
    >> Iceberg.sink("tpch.pricing").overwrite()
)

# Query 5: what suppliers sell to customers of their own nation.
customers = Iceberg.source("tpch.customer") >> select("c_custkey AS custkey", "c_nationkey AS nationkey")
suppliers = Iceberg.source("tpch.supplier") >> select("s_suppkey AS suppkey", "s_nationkey AS nationkey")
nations = Iceberg.source("tpch.nation") >> select("n_nationkey AS nationkey", "n_name AS nation")
bought = Iceberg.source("tpch.orders") >> select("o_orderkey AS orderkey", "o_custkey AS custkey")
local_sales = (
    Iceberg.source("tpch.lineitem")
    >> select("l_orderkey AS orderkey", "l_suppkey AS suppkey", "l_extendedprice * (1 - l_discount) AS revenue")
    >> join(bought, on="orderkey")
    >> join(customers, on="custkey")
    >> join(suppliers, on=["suppkey", "nationkey"])
    >> join(nations, on="nationkey")
    >> aggregate("nation", revenue="sum(revenue)")
    >> Iceberg.sink("tpch.local_sales").overwrite()
)
