"""Sandboxes of frameworks for agents and evaluations. Each module needs its framework: ramet[NAME]."""
