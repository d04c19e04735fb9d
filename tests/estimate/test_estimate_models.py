"""Models of any framework and samples in any form: the same outputs, and the model as it was."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit, softmax
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC, LinearSVC
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import BatchEncoding
from transformers.trainer_utils import PredictionOutput

from projnorm.core.errors import InputError
from projnorm.estimate.estimate import estimate_error, estimate_errors
from projnorm.models.batches import as_batches
from projnorm.models.classifiers import OnnxClassifier, as_classifier, outputs_of
from projnorm.models.recipe import Recipe
from projnorm.models.text_networks import load_pair_classifier
from projnorm.models.torch_classifier import TorchClassifier
from projnorm.outputs.outputs import Outputs
from tests.reliability.samples import onnx_network

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 6)).astype(np.float32)
Y = RNG.integers(3, size=40)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


TENSORS = torch.from_numpy(X), torch.from_numpy(Y)
FORMS = {
    "array": X,
    "tensor": TENSORS[0],
    "list of rows": X.tolist(),
    "unlabelled loader": DataLoader(TensorDataset(TENSORS[0]), batch_size=7),
    "labelled pair": (X, Y),
    "labelled mapping": {"inputs": X, "y": Y},
    "labelled pair of lists": (X.tolist(), Y.tolist()),
    "labelled dataset": TensorDataset(*TENSORS),
    "labelled loader": DataLoader(TensorDataset(*TENSORS), batch_size=7),
}


def asked(model, samples):
    """What a model of any kind says of samples in any form."""
    batches = as_batches(samples, "set")
    return outputs_of(as_classifier(model, batches), batches, "set")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_samples_gives_the_same(form):
    model = network().eval()
    with torch.no_grad():
        features = model[:-1](TENSORS[0])
        expected = model[-1](features)
    outputs = asked(model, FORMS[form])
    np.testing.assert_allclose(outputs.logits, expected, atol=1e-6)
    np.testing.assert_allclose(outputs.features, features, atol=1e-6)
    assert (outputs.labels is not None) == form.startswith("labelled")


def test_the_network_is_left_as_it_was():
    model = network().train()
    model[2].eval()
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    asked(model, X)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_network_without_a_linear_last_layer_has_no_features():
    assert asked(nn.Sequential(nn.Linear(6, 3), nn.Tanh()), X).features is None


def test_a_classifier_of_transformers_is_asked_by_name():
    body = load_pair_classifier("tiny", num_outputs=3, seed=0).model.body
    ids = RNG.integers(3, 100, size=(10, 12))
    tokens = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": Y[:10]}
    outputs = asked(body, tokens)
    with torch.no_grad():
        expected = body.eval()(input_ids=torch.from_numpy(ids)).logits.numpy()
    np.testing.assert_allclose(outputs.logits, expected, atol=1e-5)
    assert outputs.features.size > len(outputs.features) == 10
    np.testing.assert_array_equal(outputs.known_labels, Y[:10])


def test_a_classifier_of_scikit_learn_keeps_its_names_of_classes():
    names = np.array(["cat", "dog", "owl"])[Y]
    model = LogisticRegression().fit(X, names)
    outputs = asked(model, (X, names))
    np.testing.assert_allclose(np.exp(outputs.logits), model.predict_proba(X))
    assert outputs.error == pytest.approx(np.mean(model.predict(X) != names))


@pytest.mark.parametrize(
    ("model", "target", "message"),
    [
        (LogisticRegression().fit(X, Y), X[:, :4], "ValueError: X has 4 features, but LogisticRegression"),
        (LogisticRegression().fit(X, Y), X[:, 0], "ValueError: Expected 2D array, got 1D array"),
        (LogisticRegression().fit(X, Y), X * np.nan, "ValueError: Input X contains NaN"),
        (LogisticRegression(), X, "NotFittedError: "),
    ],
)
def test_a_classifier_of_scikit_learn_that_refuses_samples_says_of_which_set(model, target, message):
    samples = as_batches(target, "target")
    with pytest.raises(InputError, match=f"the model cannot see the samples of `target`: {message}"):
        as_classifier(model, samples).outputs(samples)


def test_two_texts_in_a_list_are_two_samples():
    samples = as_batches(["a text", "another"], "set")
    assert samples.labels is None
    assert samples.whole.tolist() == ["a text", "another"]
    with pytest.raises(InputError, match="a network of torch takes numbers; got object"):
        TorchClassifier.from_model(network(), samples)


@pytest.mark.parametrize("softmax", [False, True])
def test_an_onnx_file_is_run(tmp_path, softmax):
    weight = RNG.standard_normal((6, 3)).astype(np.float32)
    (tmp_path / "m.onnx").write_bytes(onnx_network(weight, softmax=softmax))
    outputs = asked(tmp_path / "m.onnx", (X, Y))
    difference = outputs.logits - X @ weight
    np.testing.assert_allclose(difference - difference.mean(axis=1, keepdims=True), 0.0, atol=1e-5)


def test_what_is_no_onnx_file_or_does_not_fit_is_said(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"not a network")
    with pytest.raises(ValueError, match=r"m\.onnx: onnxruntime cannot read it"):
        OnnxClassifier.from_file(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").write_bytes(onnx_network(np.ones((6, 3))))
    with pytest.raises(ValueError, match="the ONNX network cannot see these samples"):
        OnnxClassifier.from_file(tmp_path / "m.onnx").outputs(as_batches(X[:, :4], "set"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X[:0], "set: holds no sample"),
        ((X, Y[:-1]), "set: has 40 samples and 39 labels"),
        ("nowhere", "set: must be an array, a DataFrame, a pair of .* a Dataset or a DataLoader; got str"),
        (7, "got int"),
        ([X, Y], "got list"),
        ({"x": X, "labels": Y[1:]}, "set: `labels` must have 40 entries like `x`; got 39"),
        ({"x": X, "labels": 3}, "set: `labels` must have 40 entries like `x`; got int"),
        (
            {"ids": [[1, 2], [3]], "y": [0, 1]},
            "set: `ids` has samples of several lengths; .*padding=True, .* `collate`",
        ),
        ([{"ids": [1, 2]}, {"ids": [3]}], "`ids` must have one length in all samples; pass `collate`"),
        ([[1.0, 2.0], [3.0]], "got list"),
    ],
)
def test_samples_in_no_form_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        as_batches(data, "set")


def test_models_of_no_kind_are_refused():
    with pytest.raises(ValueError, match=r"`model` must be a torch network, .* got dict"):
        as_classifier({}, as_batches(X, "set"))
    with pytest.raises(ValueError, match=r"logits of shape \(samples, classes\); got \(4, 2, 3\)"):
        TorchClassifier.from_model(nn.Linear(6, 3), as_batches(np.zeros((4, 2, 6), np.float32), "set"))


ROWS = 120
FRAME = pd.DataFrame(
    {
        "pay": np.where(np.arange(ROWS) % 7 == 0, np.nan, RNG.standard_normal(ROWS)),
        "city": pd.Categorical(RNG.choice(["Rome", "Bonn", "Oslo"], ROWS)),
    },
    index=RNG.permutation(ROWS) + 50,
)
BOUGHT = pd.Series(np.where(FRAME["city"] == "Rome", "yes", "no"), index=FRAME.index)


def pipeline():
    columns = [("number", SimpleImputer(), ["pay"]), ("category", OneHotEncoder(), ["city"])]
    return make_pipeline(ColumnTransformer(columns), LogisticRegression())


@pytest.mark.parametrize("labels", [BOUGHT, BOUGHT.tolist(), BOUGHT.to_numpy(), BOUGHT.to_frame()])
def test_a_pipeline_sees_a_data_frame_as_it_is(labels):
    model = pipeline().fit(FRAME, BOUGHT)
    outputs = asked(model, (FRAME, labels))
    np.testing.assert_allclose(np.exp(outputs.logits), model.predict_proba(FRAME))
    assert outputs.error == np.mean(model.predict(FRAME) != BOUGHT)
    assert outputs.inputs is FRAME
    few = outputs.take(np.array([5, 3]))
    pd.testing.assert_frame_equal(few.inputs, FRAME.iloc[[5, 3]])


FOREST = HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype", min_samples_leaf=5)


@pytest.mark.parametrize("model", [pipeline(), FOREST])
def test_the_error_on_a_data_frame_with_missing_numbers_is_estimated(model):
    fitted = model.fit(FRAME, BOUGHT)
    estimate = estimate_error(fitted, (FRAME, BOUGHT), FRAME.iloc[::2])
    assert 0.0 <= estimate.error <= 0.2


def test_numbers_that_are_missing_in_an_array_go_to_a_model_that_takes_them():
    numbers = FRAME[["pay"]].to_numpy()
    model = HistGradientBoostingClassifier(max_iter=2).fit(numbers, BOUGHT)
    assert 0.0 <= estimate_error(model, (numbers, BOUGHT), numbers).error <= 1.0


def test_a_data_frame_of_polars_goes_to_the_model_as_it_is():
    pl = pytest.importorskip("polars")
    table = pl.DataFrame({"pay": FRAME["pay"].fillna(0.0).to_numpy(), "city": FRAME["city"].astype(str).to_numpy()})
    model = pipeline().fit(table, BOUGHT.to_numpy())
    outputs = asked(model, (table, pl.Series(BOUGHT.tolist())))
    np.testing.assert_allclose(np.exp(outputs.logits), model.predict_proba(table))
    assert outputs.take(np.array([2])).inputs.rows() == [table.row(2)]


def test_a_network_sees_the_numbers_of_a_data_frame():
    model = network()
    outputs = asked(model, (pd.DataFrame(X), pd.Series(Y)))
    np.testing.assert_allclose(outputs.logits, asked(model, X).logits, rtol=1e-5)
    np.testing.assert_array_equal(outputs.inputs, X)


BINARY = (X[:, 0] + 0.3 * RNG.standard_normal(40) > 0).astype(int)


@pytest.mark.parametrize("model", [LinearSVC(), SGDClassifier(loss="hinge", random_state=0), RidgeClassifier()])
@pytest.mark.parametrize("labels", [BINARY, Y], ids=["binary", "three classes"])
def test_margins_are_logits_where_there_are_no_probabilities(model, labels):
    names = np.array(["a", "b", "c"])[labels]
    model = model.fit(X, names)
    outputs = asked(model, (X, names))
    assert outputs.classes == len(set(names))
    assert outputs.error == np.mean(model.predict(X) != names)
    difference = outputs.logits[:, 1] - outputs.logits[:, 0]
    margins = model.decision_function(X)
    np.testing.assert_allclose(difference, margins if margins.ndim == 1 else margins[:, 1] - margins[:, 0], atol=1e-6)


def test_a_decision_threshold_of_the_models_own_is_kept():
    names = np.array(["no", "yes"])[BINARY]
    plain = LogisticRegression().fit(X, names)
    model = FixedThresholdClassifier(FrozenEstimator(plain), threshold=0.8, pos_label="yes").fit(X, names)
    outputs = asked(model, (X, names))
    assert outputs.error == np.mean(model.predict(X) != names) != np.mean(plain.predict(X) != names)
    np.testing.assert_array_equal(outputs.predicted, model.predict(X) == "yes")
    assert asked(plain, (X, names)).predictions is None


class OneProbability:
    """A model of the user's own that gives the probability of class 1 alone."""

    def predict_proba(self, x):
        return 1.0 / (1.0 + np.exp(-x[:, 0]))

    def predict(self, x):
        return self.predict_proba(x)


def test_a_model_may_give_the_probability_of_class_one_alone(caplog):
    outputs = asked(OneProbability(), (X, BINARY))
    assert outputs.error == np.mean((X[:, 0] > 0) != BINARY)
    assert "`predict` of the model is not used; the class of the largest output is" in caplog.text
    with pytest.raises(InputError, match="must be column numbers of the outputs, 0 to 1; got 2"):
        asked(OneProbability(), (X, Y))


HEADS = {
    "one logit": lambda: [nn.Linear(8, 1)],
    "one logit a row": lambda: [nn.Linear(8, 1), nn.Flatten(0)],
    "one probability": lambda: [nn.Linear(8, 1), nn.Sigmoid()],
    "probabilities": lambda: [nn.Linear(8, 2), nn.Softmax(dim=1)],
}


@pytest.mark.parametrize("head", HEADS)
def test_a_network_may_give_one_output_or_probabilities(head):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), *HEADS[head]())
    with torch.no_grad():
        said = model(TENSORS[0])
        hidden = model[:2](TENSORS[0]).numpy()
    expected = (said[:, 1] if head == "probabilities" else said.reshape(-1)).numpy()
    outputs = asked(model, (X, BINARY))
    difference = outputs.logits[:, 1] - outputs.logits[:, 0]
    np.testing.assert_allclose(difference if "logit" in head else expit(difference), expected, atol=1e-5)
    if head == "one logit":
        np.testing.assert_allclose(outputs.features, hidden, atol=1e-6)


def test_models_that_do_not_fit_the_number_of_classes_are_refused():
    with pytest.raises(InputError, match="set: one column of outputs is that of class 1 of two, and `labels` has 3"):
        asked(nn.Linear(6, 1), (X, Y))
    with pytest.raises(InputError, match=r"a column for each of its 4 classes; got 6\. An SVC needs"):
        asked(SVC(decision_function_shape="ovo").fit(X, np.arange(40) % 4), X)
    with pytest.raises(InputError, match="must tell two classes or more apart; it knows one"):
        asked(DummyClassifier().fit(X, np.zeros(40)), X)


def test_projnorm_trains_a_network_with_one_logit():
    torch.manual_seed(0)
    model, init = (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(2))
    chosen = {"methods": ["ProjNorm", "COT"], "init": (init, Recipe(3, lr=0.1, batch=20))}
    with pytest.raises(InputError, match="ProjNorm: scores that are no errors need calibration; pass labelled shifted"):
        estimate_error(model, (X, BINARY), X[:30] + 1.0, **chosen)
    sets = {f"moved-{i}": (X + 0.3 * i, BINARY) for i in range(1, 6)}
    estimate = estimate_error(model, (X, BINARY), X[:30] + 1.0, calibration=sets, **chosen)
    scores = {method.method: method.score for method in estimate.methods}
    assert scores["ProjNorm"] > 0.0
    assert estimate.based_on == ("ProjNorm", "COT")


@pytest.mark.parametrize("width", [1, 2])
def test_an_onnx_network_may_have_one_output(tmp_path, width):
    weight = RNG.standard_normal((6, width)).astype(np.float32)
    (tmp_path / "m.onnx").write_bytes(onnx_network(weight))
    outputs = asked(tmp_path / "m.onnx", (X, BINARY))
    z = X @ weight
    np.testing.assert_allclose(
        outputs.logits[:, 1] - outputs.logits[:, 0], z[:, -1] - (z[:, 0] if width == 2 else 0), atol=1e-5
    )


IDS = [RNG.integers(3, 100, size=RNG.integers(4, 12)).tolist() for _ in range(10)]


def padded(samples):
    """What a collator of transformers does: pads to the longest of the batch."""
    longest = max(len(sample["input_ids"]) for sample in samples)
    ids = [sample["input_ids"] + [0] * (longest - len(sample["input_ids"])) for sample in samples]
    mask = [[1] * len(sample["input_ids"]) + [0] * (longest - len(sample["input_ids"])) for sample in samples]
    batch = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    return batch | ({"labels": torch.tensor([sample["label"] for sample in samples])} if "label" in samples[0] else {})


def test_an_encoding_a_list_of_samples_with_a_collator_and_a_dataset_give_the_same():
    body = load_pair_classifier("tiny", num_outputs=3, seed=0).model.body
    samples = [{"input_ids": ids, "label": int(y)} for ids, y in zip(IDS, Y[:10], strict=True)]
    batch = padded(samples)
    encoding = BatchEncoding({key: value for key, value in batch.items() if key != "labels"})
    lists = BatchEncoding({key: value.tolist() for key, value in encoding.items()})
    expected = body.eval()(**encoding).logits.detach().numpy()
    for data, collate in (
        ((encoding, Y[:10]), None),
        ((lists, Y[:10].tolist()), None),
        (lists | {"label_ids": Y[:10]}, None),
        (samples, padded),
        (Listed(samples), padded),
    ):
        read = as_batches(data, "set", collate=collate)
        outputs = outputs_of(as_classifier(body, read), read, "set")
        np.testing.assert_allclose(outputs.logits, expected, atol=1e-5)
        np.testing.assert_array_equal(outputs.known_labels, Y[:10])
    with pytest.raises(
        InputError, match=r"set: the samples cannot be put into batches: .*; pass `collate`, or a DataLoader"
    ):
        as_batches(Listed(samples), "set")
    source = Listed([sample for sample in samples for _ in range(4)])
    estimate = estimate_error(body, source, samples, collate=padded, calibration="none")
    assert estimate.truth == pytest.approx(np.mean(expected.argmax(axis=1) != Y[:10]))


class Listed(Dataset):
    """A dataset of torch from a list."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def test_what_a_trainer_of_transformers_predicted_is_outputs():
    logits = RNG.standard_normal((40, 3))
    source = PredictionOutput(predictions=logits, label_ids=Y, metrics={})
    target = PredictionOutput(predictions=(logits[:20], np.zeros(3)), label_ids=None, metrics=None)
    plain = estimate_error(None, {"logits": logits, "labels": Y}, {"logits": logits[:20]})
    assert estimate_error(None, source, target).error == plain.error


def test_outputs_may_be_tensors_that_have_gradients():
    model = network().eval()
    source, target = {"logits": model(TENSORS[0]), "labels": TENSORS[1]}, {"logits": model(TENSORS[0][:20])}
    assert estimate_error(None, source, target).error == estimate_error(model, (X, Y), X[:20], calibration="none").error


LOGITS = RNG.standard_normal((40, 3))
SOURCE = {"logits": LOGITS, "labels": Y}
TARGET = Outputs.from_logits(LOGITS)


@pytest.mark.parametrize(
    ("model", "target", "message"),
    [
        (None, [TARGET, TARGET], "`target` must be one set; got a list of 2: use estimate_errors"),
        (None, {"a": TARGET, "b": TARGET}, "`target` must be one set; got a dict of 2: use estimate_errors"),
        (None, {"a": {"logits": LOGITS}}, "`target` must be one set; got a dict of 1: use estimate_errors"),
        (None, LOGITS, 'target: without a model .*; got ndarray; pass {"logits": array} or {"probabilities": array}'),
        (LogisticRegression().fit(X, Y), [(X, Y), (X, Y)], "`target` must be one set; got a list of 2"),
        (LogisticRegression().fit(X, Y), [X, X], "`target` must be one set; got a list of 2: use estimate_errors"),
        (
            LogisticRegression().fit(X, Y),
            (X, X),
            "target: a tuple is a pair of inputs and labels; several sets are a list",
        ),
        (LogisticRegression().fit(X, Y), {"a": (X, Y)}, "`target` must be one set; got a dict of 1"),
        (LogisticRegression().fit(X, Y), [pd.DataFrame(X)], "`target` must be one set; got a list of 1"),
    ],
)
def test_several_targets_where_one_is_meant_are_refused(model, target, message):
    with pytest.raises(InputError, match=message):
        estimate_error(model, SOURCE if model is None else (X, Y), target)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (
            {"logits": LOGITS},
            "`targets` must be a mapping by name or a list; got the arrays of one set: use estimate_error",
        ),
        (TARGET, "`targets` must be a mapping by name or a list; got Outputs: use estimate_error for one set"),
        ((TARGET, TARGET), "got tuple"),
        (pd.DataFrame({"prob_a": [1.0]}), "got DataFrame"),
        ([], "must hold one set or more"),
    ],
)
def test_targets_in_no_form_are_refused(targets, message):
    with pytest.raises(InputError, match=message):
        estimate_errors(None, SOURCE, targets)


def test_data_frames_with_a_column_called_name_may_be_targets():
    probabilities = pd.DataFrame(softmax(LOGITS, axis=1), columns=["prob_0", "prob_1", "prob_2"])
    source, target = probabilities.assign(label=Y), probabilities.assign(name="x")
    names = [one.target for one in estimate_errors(None, source, [target, target])]
    assert names == ["target 1", "target 2"]


def test_a_source_without_labels_is_told_what_to_pass():
    model = LogisticRegression().fit(X, Y)
    with pytest.raises(InputError, match="source: the source must have `labels`; pass a pair of inputs and labels"):
        estimate_error(model, X, X)


def test_arguments_in_another_order_are_named():
    model = LogisticRegression().fit(np.eye(2), [0, 1])
    source = (np.eye(2), np.array([0, 1]))
    for arguments in ((source, model, np.eye(2)), (source, np.eye(2), model)):
        with pytest.raises(InputError, match=r"got tuple\. The arguments are model, source, target, in this order\."):
            estimate_error(*arguments)
