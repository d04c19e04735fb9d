"""ProjNorm against the published procedure run step by step, and corruptions against a loop over images.

Run: ``python -m benchmarks.bench_deep`` from the root of the repository (about ten minutes on one core).
ResNet18, 32 px, one thread. The peer follows the published procedure: every batch of the target is labelled anew by
the evaluated network, and the reference is trained again for every target. Per target: one target's training, ours with
its labels computed once against the peer's with labels batch by batch, references left out. Ten targets: everything,
ours with one reference. Matched reference: one target with a reference of its own against one for all targets, the
labelling of the target included. Corruptions: 10,000 images at severity 3 against the plain per-image functions that
the tests compare with, which are timed on fewer images and scaled, for they take each image on its own. All answers are
compared first.
"""

from __future__ import annotations

import argparse
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness import interleaved_seconds, medians, write_result
from deep.estimators.projnorm import ProjNorm, ProjNormMatched
from deep.training.loop import batch_indices
from deep.training.projnorm import train_reference
from projnorm.data.corruptions.families import FAMILIES, corrupt
from projnorm.data.images import ImageNetInput
from projnorm.models.forward import forward
from projnorm.models.networks import resnet18
from projnorm.models.recipe import Recipe
from tests.data.corruption_reference import corrupt_one_by_one

PREPARE = ImageNetInput(32)
SEED = 0


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, for a smoke test")
    parser.add_argument("--out", type=Path, default=Path("results/bench_deep.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    m, targets, whole, few = (40, 2, 200, 4) if args.quick else (200, 10, 10_000, 100)
    recipe = Recipe(steps=4 if args.quick else 8, lr=5e-3, batch=m // 2)
    result = {
        "threads": 1,
        "m": m,
        "steps": recipe.steps,
        "batch": recipe.batch,
        **against_the_published_procedure(m, targets, recipe, quick=args.quick),
        "corruptions": against_a_loop(whole, few),
    }
    write_result(args.out, "python -m benchmarks.bench_deep" + (" --quick" if args.quick else ""), result)
    print(json.dumps(result, indent=1))


def against_the_published_procedure(m: int, count: int, recipe: Recipe, *, quick: bool) -> dict[str, Any]:
    """One target and a set of targets, both ways."""
    rng = np.random.default_rng(0)
    train, labels = rng.integers(0, 256, (m, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, m)
    targets = [rng.integers(0, 256, (m, 32, 32, 3), dtype=np.uint8) for _ in range(count)]
    torch.manual_seed(0)
    initial, evaluated = resnet18(10).eval(), resnet18(10).eval()

    def reference() -> dict[str, torch.Tensor]:
        return train_reference(initial, train, labels, recipe, seed=SEED, prepare=PREPARE)

    def ours(images: np.ndarray, reference_state: dict[str, torch.Tensor]) -> float:
        outputs = replace(forward(evaluated, "fc", images, prepare=PREPARE), inputs=images)
        return ProjNorm(initial, reference_state, recipe=recipe, seed=SEED, prepare=PREPARE).score(outputs)

    def ours_on_all() -> list[float]:
        reference_state = reference()
        return [ours(images, reference_state) for images in targets]

    def published(images: np.ndarray) -> float:
        tilde = step_by_step(initial, images, recipe, evaluated, None)
        return distance(step_by_step(initial, train, recipe, None, labels), tilde)

    known = reference()
    jobs = {
        "ours": lambda: ours(targets[0], known),
        "published": lambda: step_by_step(initial, targets[0], recipe, evaluated, None),
    }
    value, expected = ours(targets[0], known), published(targets[0])
    assert abs(value / expected - 1) < 1e-3, f"{value} is not {expected}"
    per_target = ratio(jobs, 2 if quick else 7)
    many = ratio({"ours": ours_on_all, "published": lambda: [published(x) for x in targets]}, 1 if quick else 3)
    pool = replace(forward(evaluated, "fc", train, prepare=PREPARE), inputs=train, labels=labels)

    def matched() -> float:
        """A reference for this target alone: the estimator is new, so that none is kept."""
        outputs = replace(forward(evaluated, "fc", targets[0], prepare=PREPARE), inputs=targets[0])
        return ProjNormMatched(initial, recipe=recipe, seed=SEED, prepare=PREPARE).fit(pool).score(outputs)

    repeats = 2 if quick else 7
    seconds = interleaved_seconds(
        {"one for all": lambda: ours(targets[0], known), "matched": matched},
        {"one for all": repeats, "matched": repeats},
    )
    median = medians(seconds)
    return {
        "agreement": abs(value / expected - 1),
        "per_target": per_target,
        f"{count}_targets": many,
        "matched_reference": {
            "seconds": seconds,
            "median_seconds": median,
            "times_one_for_all": median["matched"] / median["one for all"],
        },
    }


def step_by_step(
    initial: nn.Module, images: np.ndarray, recipe: Recipe, labeller: nn.Module | None, labels: np.ndarray | None
) -> nn.Module:
    """The procedure as published: each batch is read, labelled and stepped on in turn."""
    model = copy.deepcopy(initial).to(memory_format=torch.contiguous_format).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=recipe.steps)
    if labeller is not None:
        labeller = copy.deepcopy(labeller).to(memory_format=torch.contiguous_format).eval()
    for step in range(recipe.steps):
        rows = batch_indices(len(images), recipe.batch, step, SEED)
        x = PREPARE(torch.from_numpy(images[rows])).contiguous()
        if labeller is None:
            y = torch.from_numpy(labels[rows])
        else:
            with torch.no_grad():
                y = labeller(x).argmax(dim=1)
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
        schedule.step()
    return model


def distance(first: nn.Module, second: nn.Module) -> float:
    """Euclidean distance over the parameters."""
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return float(torch.sqrt(sum(torch.sum((a.detach().double() - b.detach().double()) ** 2) for a, b in pairs)))


def against_a_loop(whole: int, few: int) -> dict[str, Any]:
    """Seconds for `whole` images, the loop's from `few`."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (whole, 8, 8, 3), dtype=np.uint8)
    images = coarse.repeat(4, axis=1).repeat(4, axis=2)
    by_family = {}
    for family in FAMILIES:
        gap = np.abs(
            corrupt(images[:few], family, 3, seed=0).astype(int) - corrupt_one_by_one(images[:few], family, 3, 0)
        )
        assert gap.max() <= 1, f"{family} differs by {gap.max()}"
        jobs = {
            "ours": lambda family=family: corrupt(images, family, 3, seed=0),
            "loop": lambda family=family: corrupt_one_by_one(images[:few], family, 3, 0),
        }
        median = medians(interleaved_seconds(jobs, dict.fromkeys(jobs, 3)))
        loop = median["loop"] * whole / few
        by_family[family] = {"ours_seconds": median["ours"], "loop_seconds": loop, "times_ours": loop / median["ours"]}
    return {"images": whole, "loop_timed_on": few, "severity": 3, "families": by_family}


def ratio(jobs: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Median seconds and how many times ours the published procedure takes."""
    seconds = interleaved_seconds(jobs, dict.fromkeys(jobs, repeats))
    median = medians(seconds)
    return {"seconds": seconds, "median_seconds": median, "times_ours": median["published"] / median["ours"]}


if __name__ == "__main__":
    main()
