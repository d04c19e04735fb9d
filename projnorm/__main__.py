"""``python -m projnorm`` is the `projnorm` command."""

from projnorm.cli.app import main

main()
