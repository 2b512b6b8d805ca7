"""Time travel: archives of a live session and of a recording, and events in them."""
