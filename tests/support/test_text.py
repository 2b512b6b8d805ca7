"""A long path is shortened to its end, which tells mounts and files apart."""

import pytest

from latmon.support.text import path_end


@pytest.mark.parametrize(
    ("path", "cells", "shown"),
    [
        ("/srv/db", 7, "/srv/db"),
        ("/srv/db", 6, "…rv/db"),
        ("/数据/x", 7, "/数据/x"),
        ("/数据/x", 6, "…据/x"),
        ("/数据/x", 4, "…/x"),
        ("/srv", 1, "…"),
    ],
)
def test_a_long_path_is_shortened_to_its_end(path, cells, shown):
    """A wide character takes two cells: counted as one, the column would cut the end of the path off."""
    assert path_end(path, cells) == shown
