"""The client of async code."""
