"""What happens to the readers and the command line when what they are given is hostile."""
