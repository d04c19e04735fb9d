"""`projnorm demo`: the three intervals on a drawn design, the counterexample, and a page that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def run(
    out: Annotated[Path, typer.Option(help="Folder for the figures and the page.")] = Path("projnorm-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the drawn design.", min=0)] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer angles and ground truths.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print machine-readable output only.")] = False,
) -> None:
    """Three intervals for the test loss on a drawn design, and the paper's counterexample."""
    import json
    import sys
    from dataclasses import asdict

    import numpy as np

    from figures import counterexample as counterexample_figure
    from figures import report, style
    from figures import tail_angle as tail_angle_figure
    from projnorm.runs import current_environment, write_atomically
    from simulations import TailAngleConfig, counterexample_sweep, tail_angle_sweep

    config = TailAngleConfig(seed=seed, angles=11, truths=10) if quick else TailAngleConfig(seed=seed)
    sweep = tail_angle_sweep(config)
    phi = np.radians(np.linspace(5.0, 175.0, 35 if quick else 171))
    counterexample = counterexample_sweep(phi)

    rows: list[dict[str, Any]] = [
        {
            "angle_degrees": float(sweep.angle[i]),
            "ratio_min": float(sweep.ratio[i].min()),
            "ratio_max": float(sweep.ratio[i].max()),
            **{
                name: [float(end) for end in ends[i]]
                for name, ends in (("paper", sweep.paper), ("generalised", sweep.generalised), ("sharp", sweep.sharp))
            },
            "paper_coverage": float(sweep.coverage(sweep.paper)[i]),
        }
        for i in np.linspace(0, config.angles - 1, 6).astype(int)
    ]
    table = report.Table(
        ("tail angle", "true ratios", "paper", "generalised", "sharp", "paper holds for"),
        [
            (
                f"{row['angle_degrees']:.0f}°",
                f"{row['ratio_min']:.3f} to {row['ratio_max']:.3f}",
                *("{:.3f} to {:.3f}".format(*row[name]) for name in ("paper", "generalised", "sharp")),
                f"{row['paper_coverage']:.0%}",
            )
            for row in rows
        ],
    )
    environment = asdict(current_environment())
    page = report.page(
        "projnorm: three intervals and a counterexample",
        "How far the test loss of a linear model can be from the square of its Projection Norm, with no test labels.",
        [
            report.Section(
                "Three intervals for the test loss",
                tail_angle_figure.CAPTION,
                tail_angle_figure.draw(sweep),
                table,
                asdict(config),
            ),
            report.Section(
                "The paper's bound needs orthogonal tails",
                counterexample_figure.CAPTION,
                counterexample_figure.draw(counterexample),
            ),
        ],
        {**{key: value for key, value in environment.items() if key != "libraries"}, **environment["libraries"]},
    )
    paths = [
        *style.save(tail_angle_figure.draw(sweep), out, "tail_angle"),
        *style.save(counterexample_figure.draw(counterexample), out, "counterexample"),
        out / "report.html",
    ]
    write_atomically(paths[-1], page.encode("utf-8"))

    if as_json:
        typer.echo(json.dumps({"config": asdict(config), "rows": rows, "files": [str(path) for path in paths]}))
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table(*table.header, title="TestLoss / ProjNormLinear² and three intervals for it")
    for cells in table.rows:
        shown.add_row(*cells)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(shown)
    console.print(f"Figures and page written. Open {paths[-1]} in a browser.", soft_wrap=True)
