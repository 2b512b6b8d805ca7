"""Decoders of probe output: events in, model values out. Sans-IO."""
