"""Widgets: reactive lines and their drawing."""
