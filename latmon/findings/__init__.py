"""Findings: the rule engine, its evidence and the rules."""
