import sqlite3


def highest(sensor):
    db = sqlite3.connect("readings.db")
    return db.execute("SELECT min(value) FROM readings WHERE sensor = ?", (sensor,)).fetchone()[0]
