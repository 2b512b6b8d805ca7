"""The command line: arguments, configuration, and the commands without a screen."""
