"""The training loop, Algorithm 1 of the paper, the rotation head and the critic of Dis2."""
