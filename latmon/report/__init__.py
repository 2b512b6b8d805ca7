"""`latmon report`: the summary of a recording as JSON, text and HTML."""
