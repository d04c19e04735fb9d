"""``python -m projnorm``."""

from projnorm.cli.main import main

main()
