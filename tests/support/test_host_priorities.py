"""Meaning of a thread's priority, by the kernel of the host."""

import pytest

from latmon.support.host import priority_scales, priority_text


@pytest.mark.parametrize(
    ("priority", "kernel", "kind"),
    [
        (97, "SunOS 5.11", "97 (SYS class); a higher number runs first"),
        (59, "SunOS 5.11", "59 (TS, IA or FSS class); a higher number runs first"),
        (60, "SunOS 5.11", "60 (SYS class); a higher number runs first"),
        (100, "SunOS 5.11", "100 (RT class); a higher number runs first"),
        (165, "SunOS 5.11", "165 (an interrupt thread's); a higher number runs first"),
        (97, "FreeBSD 14.1-RELEASE", "97; a lower number runs first"),
        (49, "6.18.44", "49 (real time); a lower number runs first"),
        (120, "Linux 4.19", "120 (an ordinary thread's); a lower number runs first"),
    ],
)
def test_a_number_is_read_by_its_kernel(priority, kernel, kind):
    assert priority_text(priority, kernel) == kind


def test_the_scale_is_the_platforms():
    sun, bsd, linux = priority_scales("SunOS 5.11")[0], priority_scales("FreeBSD 14")[0], priority_scales("")[0]
    for part in (
        "a higher prio runs first",
        "TS, IA, FSS 0-59",
        "SYS 60-99",
        "RT 100-159",
        "interrupt threads above all",
    ):
        assert part in sun
    assert "nice" not in sun + bsd
    assert "a lower prio runs first" in bsd
    assert "120 nice 0" in linux
    for texts in map(priority_scales, ("SunOS", "FreeBSD", "6.1")):
        assert sorted(texts, key=len, reverse=True) == list(texts)
