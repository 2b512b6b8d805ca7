"""The rules, one module per finding id."""
