"""Cheaper forms of ProjNorm beside the full one: time of a target, and how well each predicts.

The times are medians of interleaved repeats on ResNet18 at 32 px, one thread, m = 1,000, T = 20; weights are random,
which changes no time. The quality is read from records: the JSON of `projnorm deep analyse sweep --layers fc,layer4+fc`
and of `projnorm deep run ... --methods all` on the same targets.

Run: python -m benchmarks.bench_cheap_projnorm SWEEP.json RUN.json; writes bench_cheap_projnorm.json and
figures/projnorm_cost.png into results/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks.harness import interleaved_seconds, medians, write_result
from benchmarks.projnorm_cost import Form, draw
from deep.estimators.projnorm import ProjNorm
from deep.training.projnorm import train_reference
from figures.style import rendered
from projnorm.data.images import ImageNetInput
from projnorm.estimators.projnorm_linear import ProjNormLinearEstimator
from projnorm.models.forward import forward
from projnorm.models.preparation import one_thread
from projnorm.models.recipe import Recipe
from projnorm.models.weights import load_network
from projnorm.outputs.outputs import Outputs

RESULTS = Path(__file__).resolve().parent.parent / "results"
M, STEPS, BATCH, REPEATS = 1_000, 20, 100, 3
FULL = "all layers"
# What is trained, and the name of the setting in the sweep.
LAYERS = {
    FULL: ((), "as in the run"),
    "last block and head": (("layer4", "fc"), "layers = layer4+fc"),
    "head": (("fc",), "layers = fc"),
}
LINEAR = "head, in closed form"


def main(sweep: Path, run: Path) -> None:
    """Measure, join, write, draw."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (M, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(10, size=M)
    prepare = ImageNetInput(32)
    initial = load_network("resnet18", "random", num_outputs=10, seed=0).model
    evaluated = load_network("resnet18", "random", num_outputs=10, seed=1).model
    known = replace(forward(evaluated, "fc", images, prepare=prepare), labels=labels)
    linear = ProjNormLinearEstimator().fit(known)
    ways: dict[str, Callable[[Outputs], float]] = {LINEAR: linear.score}
    for name, (layers, _) in LAYERS.items():
        recipe = Recipe(STEPS, 1e-3, BATCH, batch_norm="frozen", layers=layers)
        short = Recipe(1, 1e-3, BATCH, batch_norm="frozen", layers=layers)
        reference = train_reference(initial, images[:BATCH], labels[:BATCH], short, seed=0, prepare=prepare)
        ways[name] = ProjNorm(initial, reference, recipe=recipe, prepare=prepare).score

    def job(score: Callable[[Outputs], float]) -> Callable[[], float]:
        return lambda: score(replace(forward(evaluated, "fc", images, prepare=prepare), inputs=images))

    jobs = {name: job(score) for name, score in ways.items()}
    median = medians(interleaved_seconds(jobs, dict.fromkeys(jobs, REPEATS)))
    quality = {row["setting"]: row["r_squared"] for row in json.loads(sweep.read_text())["settings"]}
    document = json.loads(run.read_text())
    quality[LINEAR] = next(
        row["r_squared"] for row in document["rows"] if row["method"] == ProjNormLinearEstimator.name
    )
    names = {name: setting for name, (_, setting) in LAYERS.items()} | {LINEAR: LINEAR}
    forms = [Form(name, median[name] / median[FULL], tuple(quality[setting])) for name, setting in names.items()]
    result = {
        "m": M,
        "steps": STEPS,
        "batch": BATCH,
        "seconds": median,
        "forms": [asdict(form) for form in forms],
        "targets": document["rows"][0]["targets"],
    }
    write_result(RESULTS / "bench_cheap_projnorm.json", "python -m benchmarks.bench_cheap_projnorm", result)
    (RESULTS / "figures" / "projnorm_cost.png").write_bytes(rendered(draw(forms), "png"))
    for form in forms:
        print(f"{form.name}: {median[form.name]:.2f} s, {form.cost:.3f} of the full one, R^2 {form.r_squared[0]:.3f}")


if __name__ == "__main__":
    with one_thread("cpu"):
        main(Path(sys.argv[1]), Path(sys.argv[2]))
