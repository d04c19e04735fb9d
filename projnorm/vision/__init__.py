"""Networks, weights, images and their corruptions."""
