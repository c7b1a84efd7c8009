"""Makes a database of readings, as a stand-in for what takes long in a real task: installing, compiling, loading."""

import random
import sqlite3

chance = random.Random(1)
with sqlite3.connect("readings.db") as db:
    db.execute("CREATE TABLE readings (sensor INTEGER, value REAL)")
    db.executemany("INSERT INTO readings VALUES (?, ?)", ((chance.randrange(1000), chance.random()) for _ in range(1_000_000)))
    db.execute("CREATE INDEX by_sensor ON readings (sensor, value)")
