import time
import pytest
import pyarrow as pa
from helios import Memory
def pafill(w, table, rows):
    t0=time.time()
    schema=pa.schema([("id",pa.int64()),("part",pa.string()),("v",pa.int64()),("n",pa.int64()),("op",pa.string())])
    arrow=pa.Table.from_pylist([dict(zip(schema.names,r)) for r in rows],schema=schema)
    if not w.catalog.exists(table):
        w.catalog.create_namespace("a") if "a" not in w.catalog.namespaces() else None
        w.catalog.create_table(table, schema)
    w.catalog.load(table).iceberg.append(arrow)
    print("fill", round(time.time()-t0,2))
@pytest.mark.parametrize("k", range(3))
@pytest.mark.parametrize("mode", ["append","upsert","hist","parts","merge"])
def test_it(world, mode, k):
    T=time.time()
    w=world
    def tick(what):
        nonlocal T
        print(mode, what, round(time.time()-T,2)); T=time.time()
    pafill(w,"a.s",[(i,"ab"[i%2],i,1,"u") for i in range(6)])
    tick("fill")
    sink=w.sink("a.t")
    sink={"append":lambda:sink,"upsert":lambda:sink.upsert("id",order_by="n",delete_when="op='d'"),"hist":lambda:sink.upsert("id",order_by="n",delete_when="op='d'",history=True),
      "parts":lambda:sink.partition_by("part").overwrite_partitions(),"merge":lambda:sink.upsert("id",order_by="n")}[mode]()
    p=w.source("a.s").incremental(poll=1) >> sink
    w.run(p); tick("run1")
    pafill(w,"a.s",[(i,"ab"[i%2],i,2,"u") for i in range(4,9)])
    w.run(p); tick("run2")
    w.run(p); tick("run3 nothing")
    print(w.rows("a.t")); tick("rows")
    w.compact("a.t"); tick("compact")
    w.expire("a.t"); tick("expire")
    w.fill("a.t2",[1]); tick("fill")
