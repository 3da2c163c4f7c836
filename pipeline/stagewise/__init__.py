"""``pipeline stage`` and ``--until``: one stage alone, Arrow in, Arrow out."""
