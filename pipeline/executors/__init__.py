"""One engine per file: each provides ``pmap``, a function over items, any order, at least once."""
