"""`latmon diff`: the statistical comparison of captures."""
