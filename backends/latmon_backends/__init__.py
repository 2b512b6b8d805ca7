"""The backends that come with latmon: each turns one source of measurements into frames."""
