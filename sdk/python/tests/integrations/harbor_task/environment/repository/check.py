import sqlite3

from report import highest

values = [v for (v,) in sqlite3.connect("readings.db").execute("SELECT value FROM readings WHERE sensor = 7")]
assert highest(7) == max(values)
