"""How things run and are kept: errors, settings, files, records, stores, progress, devices, statistics."""
