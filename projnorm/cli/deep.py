"""`projnorm deep presets` and `deep gallery`: configurations by name, and a picture under every corruption."""

from __future__ import annotations

from pathlib import Path

from projnorm.cli.options import FigureOptions, OutOption
from projnorm.cli.output import say, say_json, say_paths


def presets(out: OutOption) -> None:
    """List the configurations that have a name, for `projnorm deep run`."""
    from deep.comparison.config import TextConfig
    from deep.comparison.presets import PRESETS
    from figures.table import Table

    if out.json:
        say_json({name: config.to_json() for name, config in PRESETS.items()})
        return
    rows = [
        (
            name,
            "text" if isinstance(config, TextConfig) else "images",
            Path(config.data.data).name,
            f"{config.data.m:,}",
            f"{config.projnorm.steps:,}",
            str(config.finetune.epochs),
        )
        for name, config in PRESETS.items()
    ]
    say(Table(("preset", "samples", "data", "m", "T", "epochs"), rows).text())


def gallery(out: OutOption, drawing: FigureOptions) -> None:
    """Draw one picture under every corruption."""
    from figures.corruption_gallery import draw
    from figures.style import save

    paths = save(draw(), out.figures, "corruptions", formats=drawing.formats, width=drawing.width or None)
    say_paths(paths, as_json=out.json)
