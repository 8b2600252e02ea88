"""The folder of a run: files that are whole or not there. Imports no torch."""
