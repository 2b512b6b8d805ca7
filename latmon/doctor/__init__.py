"""`latmon doctor`: checks of the host and the self-test."""
