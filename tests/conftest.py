"""What all tests share: Hypothesis without a deadline, because a busy host makes any single example slow."""

import pytest
from hypothesis import settings

settings.register_profile("latmon", deadline=None, max_examples=60)
settings.load_profile("latmon")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs probes on this host's kernel runs on one worker, one after the other."""
    for item in items:
        if item.path.parent.name == "live":
            item.add_marker(pytest.mark.xdist_group("kernel"))
