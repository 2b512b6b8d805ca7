"""Screens: what is on the terminal at one time."""
