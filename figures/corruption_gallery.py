"""One picture under every family and severity of corruptions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from figures.families import label_of
from figures.style import Figure, plot
from projnorm.data.corruptions.families import FAMILIES, corrupt
from projnorm.data.image_settings import SEVERITIES

CAPTION = (
    "A photograph that comes with scikit-learn at 32 px, clean on the left, then at severities 1 to 5 of each of the "
    "19 families of CIFAR-10-C. All are generated here; the frost is a drawn texture, where CIFAR-10-C has photographs."
)
_COLUMNS = 2
_SIZE = 32


@plot("The corruptions", CAPTION)
def draw(figure: Figure, picture: NDArray[np.uint8] | None = None, *, seed: int = 0) -> None:
    """A grid of pictures: of one with shape ``(height, width, 3)``, or of the sample."""
    image = (_sample() if picture is None else picture)[None]
    strips = {
        family: np.concatenate([image[0], *(corrupt(image, family, s, seed=seed)[0] for s in SEVERITIES)], axis=1)
        for family in sorted(FAMILIES)
    }
    rows = -(-len(strips) // _COLUMNS)
    figure.set_size_inches(7.4, 0.74 * rows)
    grid = figure.subplots(rows, _COLUMNS, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, (family, strip) in zip(grid.T.flat, strips.items(), strict=False):
        axes.imshow(strip, interpolation="nearest")
        axes.set_title(label_of(family), fontsize=7, loc="left", pad=2)


def _sample() -> NDArray[np.uint8]:
    """The flower of scikit-learn, its middle at 32 px."""
    from sklearn.datasets import load_sample_image

    photograph = load_sample_image("flower.jpg")
    side = min(photograph.shape[:2])
    top, left = ((size - side) // 2 for size in photograph.shape[:2])
    square = Image.fromarray(photograph[top : top + side, left : left + side])
    return np.asarray(square.resize((_SIZE, _SIZE), Image.Resampling.BOX))
