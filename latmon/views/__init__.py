"""Views: pure functions from frames and a size to lines of text with roles."""
