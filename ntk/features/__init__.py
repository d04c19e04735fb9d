"""From what a pass kept to kernels or features, and their sizes."""
