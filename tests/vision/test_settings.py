"""Settings of experiments on images."""

from __future__ import annotations

import subprocess
import sys

import pytest

from projnorm.errors import InputError
from projnorm.vision import FAMILIES, NETWORKS
from projnorm.vision.settings import ARCHITECTURES, FAMILY_NAMES, ImageNetwork, ShiftedImages


def test_the_names_are_those_of_what_there_is():
    assert tuple(FAMILIES) == FAMILY_NAMES
    assert tuple(NETWORKS) == ARCHITECTURES


def test_settings_are_imported_without_torch():
    check = "import sys, projnorm.vision.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize("change", [{"families": ("fog of war",)}, {"severities": (6,)}, {"families": ("fog", "fog")}])
def test_shifts_that_do_not_exist_are_refused(change):
    with pytest.raises(InputError, match=f"`{next(iter(change))}`"):
        ShiftedImages(**change)


def test_networks_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match=r"`architecture` must be one of resnet18, .*alexnet"):
        ImageNetwork(architecture="alexnet")
