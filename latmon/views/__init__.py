"""Views: pure functions from a window of frames and a size to lines of text with roles. No Textual, no colours."""
