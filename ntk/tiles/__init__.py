"""Large kernels, tile by tile, within a limit of memory."""
