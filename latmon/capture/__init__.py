"""A capture: backends by name, the collector process, the feed to the UI, the recorder."""
