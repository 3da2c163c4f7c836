"""One engine per file: each provides ``pmap``, a function over items, any order, at least once.

One that has a parameter ``job`` is given what ``_job`` describes.
"""
