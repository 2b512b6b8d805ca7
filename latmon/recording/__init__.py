"""The recording: JSON Lines in a gzip file of many members. Reader, writer, parts, roll-ups, checks."""
