"""A few labels: which samples to label, and what the labels say of the error whatever the shift is."""
