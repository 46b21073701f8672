"""The command line: thin shells over the rooms, one module per command."""
