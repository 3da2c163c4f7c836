"""Engines by name: each provides ``pmap``, a function over items, any order, at least once.

One that has a parameter ``job`` is given what ``pipeline.job`` describes.
"""

MEMBERS = {"local": "pipeline.processes", "ray": "pipeline.ray"}
