"""The command line: one file per sub-command, heavy libraries imported only when a command runs."""
