"""Studies that led to defaults; each is a script, and none is installed."""
