"""A request's flags: by the kernel's bits, by rwbs, and always in one order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon_backends.probe.outliers import USUAL, WORDS, of_bits, of_letters, positions


def test_bits_become_words_in_their_order():
    flags = 1 | 1 << 12 | 1 << 11 | 1 << 17 | 1 << 14
    assert of_bits(flags, USUAL) == ("sync", "fua", "meta")
    assert of_bits(1, USUAL) == of_bits(0, USUAL) == ()
    assert of_bits(2**64 - 1, USUAL) == tuple(WORDS)


def test_the_kernels_own_positions_count():
    actual_positions = positions({"__REQ_SYNC": 3, "__REQ_META": 4, "__REQ_NR_BITS": 30})
    assert actual_positions == {"sync": 3, "meta": 4}
    assert of_bits(0b11000, actual_positions) == ("sync", "meta")


@pytest.mark.parametrize("bits", [{}, {"__REQ_SYNC": -1}, {"__REQ_SYNC": 2**32 - 1}, {"REQ_OP_READ": 0}])
def test_without_them_the_usual_ones_do(bits):
    assert positions(bits) == USUAL


@pytest.mark.parametrize(
    ("rwbs", "words"),
    [
        ("R", ()),
        ("W", ()),
        ("RA", ("readahead",)),
        ("RAM", ("meta", "readahead")),
        ("RSM", ("sync", "meta")),
        ("WS", ("sync",)),
        ("WFS", ("sync", "fua")),
        ("FWFS", ("sync", "fua", "preflush")),
        ("FWSM", ("sync", "meta", "preflush")),
        ("F", ()),
        ("FF", ("preflush",)),
        ("FFS", ("sync", "preflush")),
        ("FS", ("sync",)),
        ("D", ()),
        ("DS", ("sync",)),
        ("DES", ("sync",)),
        ("N", ()),
        ("ZA", ()),
        ("ZRAS", ("sync",)),
        ("WSU", ("sync",)),
        *((odd, ()) for odd in ("", "X", "SSS", "RR", "FX", "WMS")),
    ],
)
def test_letters(rwbs, words):

    assert of_letters(rwbs) == words


@given(st.text(), st.integers(0, 2**64 - 1), st.dictionaries(st.sampled_from(list(WORDS.values())), st.integers()))
def test_nothing_is_too_odd(rwbs, flags, bits):
    for words in (of_letters(rwbs), of_bits(flags, positions(bits))):
        assert list(words) == [word for word in WORDS if word in words]
