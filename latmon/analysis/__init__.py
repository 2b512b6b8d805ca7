"""Derived numbers: attribution, limits, peers, Little's law, issue order. Pure functions of the model."""
