"""Models of any framework and samples in any form: the same outputs, and the model as it was."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from deep.estimate.batches import as_batches
from deep.estimate.classifiers import OnnxClassifier, as_classifier, outputs_of
from deep.estimate.torch_classifier import TorchClassifier
from projnorm.errors import InputError
from projnorm.text.networks import load_pair_classifier
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
    found = asked(model, FORMS[form])
    np.testing.assert_allclose(found.logits, expected, atol=1e-6)
    np.testing.assert_allclose(found.features, features, atol=1e-6)
    assert (found.labels is not None) == form.startswith("labelled")


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
    found = asked(body, tokens)
    with torch.no_grad():
        expected = body.eval()(input_ids=torch.from_numpy(ids)).logits.numpy()
    np.testing.assert_allclose(found.logits, expected, atol=1e-5)
    assert found.features.size > len(found.features) == 10
    np.testing.assert_array_equal(found.known_labels, Y[:10])


def test_a_classifier_of_scikit_learn_keeps_its_names_of_classes():
    names = np.array(["cat", "dog", "owl"])[Y]
    model = LogisticRegression().fit(X, names)
    found = asked(model, (X, names))
    np.testing.assert_allclose(np.exp(found.logits), model.predict_proba(X))
    assert found.error == pytest.approx(np.mean(model.predict(X) != names))


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
    assert samples.array is not None
    assert samples.array.tolist() == ["a text", "another"]
    with pytest.raises(InputError, match="a network of torch takes numbers; got object"):
        TorchClassifier.of(network(), samples)


@pytest.mark.parametrize("softmax", [False, True])
def test_an_onnx_file_is_run(tmp_path, softmax):
    weight = RNG.standard_normal((6, 3)).astype(np.float32)
    (tmp_path / "m.onnx").write_bytes(onnx_network(weight, softmax=softmax))
    found = asked(tmp_path / "m.onnx", (X, Y))
    difference = found.logits - X @ weight
    np.testing.assert_allclose(difference - difference.mean(axis=1, keepdims=True), 0.0, atol=1e-5)


def test_what_is_no_onnx_file_or_does_not_fit_is_said(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"not a network")
    with pytest.raises(ValueError, match=r"m\.onnx: onnxruntime cannot read it"):
        OnnxClassifier.of(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").write_bytes(onnx_network(np.ones((6, 3))))
    with pytest.raises(ValueError, match="the ONNX network cannot see these samples"):
        OnnxClassifier.of(tmp_path / "m.onnx").outputs(as_batches(X[:, :4], "set"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X[:0], "set: holds no sample"),
        ((X, Y[:-1]), "set: has 40 samples and 39 labels"),
        ("nowhere", "set: must be an array, a pair of inputs and labels, a Dataset or a DataLoader; got str"),
        (7, "got int"),
        ([X, Y], "got list"),
        ([[1.0, 2.0], [3.0]], "got list"),
    ],
)
def test_samples_in_no_form_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        as_batches(data, "set")


def test_models_of_no_kind_are_refused():
    with pytest.raises(ValueError, match=r"`model` must be a torch network, .* got dict"):
        as_classifier({}, as_batches(X, "set"))
    with pytest.raises(ValueError, match=r"logits of shape \(samples, classes\); got \(2, 2, 3\)"):
        TorchClassifier.of(nn.Linear(6, 3), as_batches(np.zeros((4, 2, 6), np.float32), "set"))
