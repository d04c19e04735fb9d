"""Experiments on trained networks: images in, record out."""
