"""One forward and backward pass that keeps what gradients are made of."""
