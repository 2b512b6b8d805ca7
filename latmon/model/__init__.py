"""The model: frozen values that flow from backends to readers."""
