"""What every run shares: where it ran and, later, how its records are kept."""

from projnorm.runs.environment import Environment, current_environment

__all__ = ["Environment", "current_environment"]
