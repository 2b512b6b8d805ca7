"""`latmon export`: a recording in other tools' formats."""
