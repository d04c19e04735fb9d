"""A setting is declared once: its checks, JSON and TOML follow from the declaration."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from projnorm.core.config import Config, read_toml, setting, settings
from projnorm.core.errors import InputError


@dataclass(frozen=True)
class RecipeConfig(Config):
    """A training."""

    lr: float = setting(1e-3, "Learning rate.", above=0.0)
    steps: int = setting(10, "Number of steps.", least=1, most=100)


@dataclass(frozen=True)
class WholeConfig(Config):
    """Everything."""

    data: str = setting(help="Data.")
    train: RecipeConfig = setting(RecipeConfig(), "Training.")
    methods: tuple[str, ...] = setting(("COT",), "Methods.", choices=lambda: ("COT", "ATC"), distinct=True)
    sizes: tuple[float, ...] = setting((1.0,), "Sizes.", below=10.0, nonempty=True)
    limit: float | None = setting(None, "Limit.")
    quick: bool = setting(False, "Quick.")

    def check(self) -> None:
        if self.quick and self.train.steps > 50:
            raise InputError("`quick` needs few `steps`.")


WHOLE = WholeConfig("x", RecipeConfig(0.5, 7), ("ATC", "COT"), (1.0, 2.5), 3.0, True)


def test_json_and_toml_give_the_same_configuration(tmp_path):
    assert WholeConfig.from_json(json.loads(json.dumps(WHOLE.to_json()))) == WHOLE
    path = tmp_path / "config.toml"
    path.write_text(WHOLE.to_toml())
    assert WholeConfig.from_json(read_toml(path)) == WHOLE
    assert WholeConfig("x").to_json()["limit"] is None
    path.write_text(WholeConfig('quotes " and\nlines').to_toml())
    assert WholeConfig.from_json(read_toml(path)).data == 'quotes " and\nlines'


def test_values_are_normalised():
    config = WholeConfig("x", methods=["atc"], sizes=[3])
    assert config.methods == ("ATC",)
    assert config.sizes == (3.0,)
    assert isinstance(config.sizes[0], float)


def test_updating_keeps_what_is_not_named():
    assert WHOLE.updated({"train": {"steps": 9}}).train == RecipeConfig(0.5, 9)
    assert WHOLE.updated({}) == WHOLE


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "`data` must be given"),
        ({"data": "x", "nonsense": 1}, "there is no setting `nonsense`; there are data, train"),
        ({"data": 3}, "`data` must be text; got 3"),
        ({"data": "x", "quick": 1}, "`quick` must be true or false; got 1"),
        ({"data": "x", "train": {"steps": True}}, "`train.steps` must be a whole number; got True"),
        ({"data": "x", "train": {"steps": 10**400}}, "`train.steps` is too large a number"),
        ({"data": "x", "train": {"steps": 0}}, "`train.steps` must be at least 1; got 0"),
        ({"data": "x", "train": {"steps": 101}}, "`train.steps` must be at most 100; got 101"),
        ({"data": "x", "train": {"lr": 0}}, "`train.lr` must be positive; got 0"),
        ({"data": "x", "train": {"lr": float("nan")}}, "`train.lr` must be positive; got nan"),
        ({"data": "x", "train": {"lr": float("inf")}}, "`train.lr` must be finite; got inf"),
        ({"data": "x", "train": 3}, "settings must have names; got a int"),
        ({"data": "x", "methods": ["COT", "cot"]}, "`methods` must name each one once"),
        ({"data": "x", "methods": ["GDE"]}, "`methods` must be one of COT, ATC; got 'GDE'"),
        ({"data": "x", "methods": "COT"}, "`methods` must be a list; got 'COT'"),
        ({"data": "x", "sizes": []}, "`sizes` must have at least one entry"),
        ({"data": "x", "sizes": [10]}, "`sizes` must be below 10; got 10"),
        ({"data": "x", "quick": True, "train": {"steps": 60}}, "`quick` needs few `steps`"),
        ([1], "settings must have names; got a list"),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(document, words):
    with pytest.raises(InputError) as caught:
        WholeConfig.from_json(document)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_toml_is_one_line(tmp_path):
    path = tmp_path / "x.toml"
    for text in (b"a = = 3", b"\xff\xfe", b"[" * 5000):
        path.write_bytes(text)
        with pytest.raises(InputError, match=r"x\.toml: not a TOML file") as caught:
            read_toml(path)
        assert "\n" not in str(caught.value)


def test_settings_describe_themselves():
    described = {one.name: one for one in settings(WholeConfig)}
    assert described["train"].is_config
    assert described["sizes"].entry_type is float
    assert (described["limit"].type, described["limit"].optional) == (float, True)
    assert described["methods"].rule.help == "Methods."
