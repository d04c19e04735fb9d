"""What happens to writers when they are killed or hindered, and to readers when what they are given is hostile."""
