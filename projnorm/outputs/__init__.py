"""What a model gave for samples: logits or probabilities, features and labels, from arrays, tables and files."""
