"""Row ids: what is written is read again, and what is none of ours names nothing."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from expectations import undo_layout

_TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(st.data())
def test_what_is_written_is_read_again(data: st.DataObject) -> None:
    """Names of inputs may hold colons, hashes, digits and line breaks."""
    odd = st.sampled_from(["a:1", "b#2", "c:3#4", "d\ne", "9"])
    sources = data.draw(st.lists(_TEXTS | odd, min_size=1, max_size=4, unique=True))
    rows = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, len(sources) - 1), st.integers(1, 1 << 40), st.integers(-1, 1 << 20)
            ),
            min_size=1,
        )
    )
    columns = np.array(rows, np.int64).T
    place = dict(zip(undo_layout.PLACE, columns, strict=True))
    found = undo_layout.names_read(sources, undo_layout.names_written(sources, place))
    for name in undo_layout.PLACE:
        assert found[name].tolist() == place[name].tolist()


def test_what_is_no_row_id_names_nothing() -> None:
    """Not even a line, where a part of it looks like one."""
    odd = f"|:|x|x:|x:1#|x:1#2#|x:a|x:\u0663|x:-1|x:1\n|x:{10**19}".split("|")
    found = undo_layout.names_read(["x"], pa.array([*odd, None, "y:1", "x:7"], pa.string()))
    assert found["source"].tolist() == [-1] * 13 + [0]
    assert found["line"].tolist() == [-1] * 12 + [1, 7]
    assert found["sequence"].tolist() == [-1] * 14
