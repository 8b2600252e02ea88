"""The command `explore`."""
