"""Panels: what a screen shows between its title and its notices, drawn from a Sight. One module per screen."""
