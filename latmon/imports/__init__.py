"""Other tools' text becomes a recording: a module per format (lines in, values out), others for what all of them need.

`formats` lists them, `frames` makes windows of what they find, `command` is `latmon import`.
"""

from latmon.imports.command import import_command

__all__ = ["import_command"]
