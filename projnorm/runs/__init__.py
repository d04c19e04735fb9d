"""What every run shares: whole files, and where a number came from."""

from projnorm.runs.atomic import write_atomically
from projnorm.runs.environment import Environment, current_environment

__all__ = ["Environment", "current_environment", "write_atomically"]
