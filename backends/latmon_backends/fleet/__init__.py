"""The fleet backend: frames of several hosts over ssh, merged into one frame per interval."""
