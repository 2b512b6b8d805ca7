"""`latmon import`: other tools' text as a recording."""
