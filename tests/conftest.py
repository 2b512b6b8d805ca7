"""What all tests share: Hypothesis without a deadline, because a busy host makes any single example slow."""

from hypothesis import settings

settings.register_profile("latmon", deadline=None, max_examples=60)
settings.load_profile("latmon")
