"""The DTrace backend."""
