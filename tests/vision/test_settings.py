"""Settings of experiments on images."""

from __future__ import annotations

from projnorm.vision import FAMILIES, NETWORKS
from projnorm.vision.settings import ARCHITECTURES, FAMILY_NAMES


def test_the_names_are_those_of_what_there_is():
    assert tuple(FAMILIES) == FAMILY_NAMES
    assert tuple(NETWORKS) == ARCHITECTURES
