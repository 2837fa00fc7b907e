from collections import Counter
import pytest
from helios import Memory, expect, where, with_columns
from helios.errors import HeliosError
def test_positions(world):
    w=world
    w.fill("a.s",[1,2],v="'a'",ts="1"); w.fill("a.s",[1,2],v="'b'",ts="1"); w.fill("a.s",[1],v="'c'",ts="0")
    p=w.source("a.s").incremental() >> with_columns(v="upper(v)") >> w.sink("a.t").upsert("id",order_by="ts")
    w.run(p); assert w.rows("a.t","id","v")==Counter([(1,'B'),(2,'B')]), w.rows("a.t")
    w.fill("a.s",[1],v="'d'",ts="1"); w.fill("a.s",[1],v="'e'",ts="1"); w.fill("a.s",[2],v="'late'",ts="0")
    r=w.run(p); assert w.rows("a.t","id","v")==Counter([(1,'E'),(2,'B')])
    print(r.metrics().to_json()); print(w.rows("a.t"))
def test_expect(world):
    w=world
    src=lambda *ids: Memory.source([{"id":i,"k":i%3} for i in ids])
    for mode in ("fail","drop"):
        try:
            r=w.run((src(1,2,3)>>expect({"odd":"id % 2 = 1","small":"id < 9"},on_fail=mode)>>w.sink("a.e_"+mode)))
            print(w.ids("a.e_"+mode), r.metrics().records_failed)
        except HeliosError as e: print(e)
    r=w.run((src(1,2,3)>>expect({"odd":"id % 2 = 1","small":"id < 9"},on_fail="quarantine")>>w.sink("a.q").quarantine("a.bad")))
    print(w.ids("a.q"), r.metrics().records_failed, w.sql("select * from local.a.bad"))
    r=w.run(Memory.source([{"id":1,"v":"a"},{"id":None,"v":"b"}])>>w.sink("a.u").quarantine("a.bad2").upsert("id"))
    print(w.ids("a.u"), w.sql("select * from local.a.bad2"))
    r=w.run(Memory.source([{"id":1,"v":"a"},{"id":2,"v":"b-"},{"id":3,"v":None}])>>w.sink("a.r").quarantine("a.bad3").route(by="v"))
    print(w.ids("a.r_a"), w.sql("select * from local.a.bad3"))
    for bad in (Memory.source([{"id":1,"v":"a"},{"id":None,"v":"b"}])>>w.sink("a.u2").upsert("id"), Memory.source([{"id":1,"v":"a"},{"id":1,"v":"b"}])>>w.sink("a.u3").upsert("id"),Memory.source([{"id":1,"v":"a-"},{"id":1,"v":"b"}])>>w.sink("a.u4").route(by="v")):
        with pytest.raises(HeliosError) as e: w.run(bad)
        print(e.value)
def test_evolve_midstream(world):
    w=world
    w.fill("a.s",[1,2]); 
    for extra in ("", "rows"):
        p=w.source("a.s").incremental(poll="300ms") >> (w.sink("a.t"+extra).flush(rows=1000) if extra else w.sink("a.t"))
        run=w.start(p)
        import time
        t0=time.time()
        while time.time()-t0<90 and not (w.catalog.exists("a.t"+extra) and len(w.catalog.load("a.t"+extra).snapshots())>0): time.sleep(0.2)
        if not extra: w.sql("ALTER TABLE local.a.s ADD COLUMN c string")
        else: w.sql("ALTER TABLE local.a.s ADD COLUMN d string")
        w.sql(f"INSERT INTO local.a.s SELECT 7, 'new'{', null' if extra else ''}")
        while time.time()-t0<120 and run.active and len(w.ids("a.t"+extra))<(4 if extra else 3): time.sleep(0.3)
        run.stop(); run.await_termination(60)
        print(w.rows("a.t"+extra), [e for e in w.events if e.kind in("restarted","failed")])
