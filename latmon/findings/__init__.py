"""latmon says in words what is wrong: rules over the last minute's frames, one file each, and what they find over time.

`watch.Watch` is fed with frames; registry.py lists the rules, thresholds.py all of their numbers. Nothing of it is
recorded: an old recording profits from a new rule.
"""
