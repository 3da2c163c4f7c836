"""Ragged rows, stored once, and packs beside them that name examples by their numbers.

No task offers it: ``--index-only`` stores packed rows so. Two packs of four examples::

    train/data-00000-of-00001.arrow   four rows, one an example
    packs/train.arrow                 examples [0, 3]     tokens 4090
                                      examples [1, 2]     tokens 4096
"""

from __future__ import annotations

from stages.tokens.ragged import Ragged


class _Indexed(Ragged):
    name = stage = "indexed"
    indexed = True


LAYOUT = _Indexed()
