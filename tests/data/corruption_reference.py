"""Every family of corruptions one image at a time, straight from its definition, with the tools a person would take.

The definitions are those of CIFAR-10-C (Hendrycks and Dietterich, ICLR 2019), with the drawn frost of this package.
Nothing here is shared with the package but the parameters and the random numbers.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import affine_transform, convolve1d, correlate, gaussian_filter, map_coordinates, zoom
from scipy.stats import poisson

from projnorm.data.corruptions import parameters
from projnorm.data.corruptions.draws import Draws
from tests.data.canny_reference import relief_reference

Floats = NDArray[np.float64]
Pixels = NDArray[np.uint8]

_SEVERITIES = 5
_GREY = (0.299, 0.587, 0.114)
_WATER, _MUD = (175, 238, 238), (63, 42, 20)


def reference(image: Pixels, family: str, severity: int, draws: Draws) -> Floats:
    """The corrupted image before it is cut to whole numbers; shape ``(height, width, 3)``, severity 1 to 5."""
    return 255.0 * np.clip(REFERENCES[family](image / 255.0, severity - 1, draws), 0.0, 1.0)


def corrupt_one_by_one(images: Pixels, family: str, severity: int, seed: int) -> Pixels:
    """Every image corrupted by `reference`, in a loop."""
    draws = [draws_of(family, severity, seed, key) for key in range(len(images))]
    found = [reference(image, family, severity, own) for image, own in zip(images, draws, strict=True)]
    return np.array(found).astype(np.uint8)


def draws_of(family: str, severity: int, seed: int, key: int) -> Draws:
    """The random numbers of one image: every seed, family and severity has a stream, counted in this order."""
    stream = (seed * len(REFERENCES) + list(REFERENCES).index(family)) * _SEVERITIES + severity
    return Draws(stream, np.array([key]))


def _gaussian_noise(x: Floats, level: int, draws: Draws) -> Floats:
    return x + draws.normals(x.shape)[0] * parameters.GAUSSIAN_NOISE[level]


def _shot_noise(x: Floats, level: int, draws: Draws) -> Floats:
    photons = parameters.SHOT_NOISE[level]
    return poisson.ppf(draws.uniforms(x.shape)[0], photons * x) / photons


def _impulse_noise(x: Floats, level: int, draws: Draws) -> Floats:
    struck = draws.uniforms(x.shape)[0] <= parameters.IMPULSE_NOISE[level]
    salt = draws.uniforms(x.shape, 1)[0] <= 0.5
    return np.where(struck, 1.0 * salt, x)


def _speckle_noise(x: Floats, level: int, draws: Draws) -> Floats:
    return x * (1.0 + draws.normals(x.shape)[0] * parameters.SPECKLE_NOISE[level])


def _gaussian_blur(x: Floats, level: int, _draws: Draws) -> Floats:
    return _blurred(x, parameters.GAUSSIAN_BLUR[level])


def _glass_blur(x: Floats, level: int, draws: Draws) -> Floats:
    sigma, rounds = parameters.GLASS[level]
    height, width, _ = x.shape
    pixels = (255.0 * _blurred(x, sigma)).astype(np.uint8)
    for uniforms in draws.uniforms((rounds, 2, height, width))[0]:
        for row in range(height - 1, 1, -1):
            for column in range(width - 1, 1, -1):
                left, up = (uniforms[:, row, column] < 0.5).astype(int)
                pixels[row, column] = pixels[row - up, column - left]
    return _blurred(pixels / 255.0, sigma)


def _defocus_blur(x: Floats, level: int, _draws: Draws) -> Floats:
    radius, edge = parameters.DEFOCUS[level]
    across, down = np.meshgrid(np.arange(-8, 9), np.arange(-8, 9))
    disk = (np.hypot(across, down) <= radius).astype(np.float64)
    bell = np.exp(-np.array([1.0, 0.0, 1.0]) / (2.0 * edge**2))
    for axis in (0, 1):
        disk = convolve1d(disk, bell / bell.sum(), axis=axis)
    return correlate(x, (disk / disk.sum())[..., None], mode="mirror")


def _motion_blur(x: Floats, level: int, draws: Draws) -> Floats:
    radius, sigma = parameters.MOTION[level]
    return _blown(x, radius, sigma, -45.0 + 90.0 * float(draws.uniforms(())[0]))


def _zoom_blur(x: Floats, level: int, _draws: Draws) -> Floats:
    factors = np.arange(1.0, parameters.ZOOM[level], 0.01)
    return np.mean([x, *(_zoomed(x, factor) for factor in factors)], axis=0)


def _fog(x: Floats, level: int, draws: Draws) -> Floats:
    amount, decay = parameters.FOG[level]
    height, width, _ = x.shape
    mist = _landscape(draws, max(height, width), decay)[:height, :width, None]
    return (x + amount * mist) * x.max() / (x.max() + amount)


def _frost(x: Floats, level: int, draws: Draws) -> Floats:
    picture, weight = parameters.FROST[level]
    ice = parameters.FROST_TEXTURE
    height, width, _ = x.shape
    cloud, folded = (_landscape(draws, max(height, width), ice.decay, part)[:height, :width] for part in (0, 1))
    needles = np.minimum(2.0 * folded, 2.0 - 2.0 * folded) ** ice.sharpness
    texture = np.minimum(ice.shade + ice.cloud * cloud + ice.needles * needles, 1.0)
    return picture * x + weight * np.multiply.outer(texture, ice.tint)


def _snow(x: Floats, level: int, draws: Draws) -> Floats:
    snow = parameters.SNOW[level]
    flakes = _zoomed(snow.mean + snow.deviation * draws.normals(x.shape[:2])[0][..., None], snow.zoom)
    flakes[flakes < snow.threshold] = 0.0
    flakes = (255.0 * np.clip(flakes, 0.0, 1.0)).astype(np.uint8) / 255.0
    flakes = _blown(flakes, snow.radius, snow.sigma, -135.0 + 90.0 * float(draws.uniforms((), 1)[0]))
    grey = (x @ _GREY)[..., None]
    whitened = snow.keep * x + (1.0 - snow.keep) * np.maximum(x, 1.5 * grey + 0.5)
    return whitened + flakes + np.rot90(flakes, 2)


def _spatter(x: Floats, level: int, draws: Draws) -> Floats:
    drops = parameters.SPATTER[level]
    liquid = gaussian_filter(
        drops.mean + drops.deviation * draws.normals(x.shape[:2])[0], drops.sigma, mode="nearest", truncate=4.0
    )
    liquid[liquid < drops.threshold] = 0.0
    if drops.mud:
        mud = gaussian_filter((liquid > drops.threshold) * 1.0, drops.strength, mode="nearest", truncate=4.0)
        mud[mud < 0.8] = 0.0
        return (1.0 - mud)[..., None] * x + np.multiply.outer(mud, np.array(_MUD) / 255.0)
    grey = (255.0 * liquid).astype(np.int64) % 256
    light = grey * relief_reference(grey)
    if light.max() > 0:
        light = light / light.max()
    return x + drops.strength * np.multiply.outer(light, np.array(_WATER) / 255.0)


def _contrast(x: Floats, level: int, _draws: Draws) -> Floats:
    means = x.mean(axis=(0, 1))
    return parameters.CONTRAST[level] * (x - means) + means


def _brightness(x: Floats, level: int, _draws: Draws) -> Floats:
    hsv = rgb_to_hsv(x)
    hsv[..., 2] = np.clip(hsv[..., 2] + parameters.BRIGHTNESS[level], 0.0, 1.0)
    return hsv_to_rgb(hsv)


def _saturate(x: Floats, level: int, _draws: Draws) -> Floats:
    factor, offset = parameters.SATURATE[level]
    hsv = rgb_to_hsv(x)
    hsv[..., 1] = np.clip(factor * hsv[..., 1] + offset, 0.0, 1.0)
    return hsv_to_rgb(hsv)


def _jpeg_compression(x: Floats, level: int, _draws: Draws) -> Floats:
    file = io.BytesIO()
    _picture(x).save(file, "JPEG", quality=parameters.JPEG[level])
    return np.asarray(Image.open(file)) / 255.0


def _pixelate(x: Floats, level: int, _draws: Draws) -> Floats:
    height, width, _ = x.shape
    share = parameters.PIXELATE[level]
    small = _picture(x).resize((int(width * share), int(height * share)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX)) / 255.0


def _elastic_transform(x: Floats, level: int, draws: Draws) -> Floats:
    height, width, _ = x.shape
    strength, smoothness, jitter = (min(height, width) * share for share in parameters.ELASTIC[level])
    # Points are (across, down, 1); the middle is (height, width) halved, which is the script's order.
    middle, third = np.array([height // 2, width // 2]), min(height, width) // 3
    before = np.array([middle + third, [middle[0] + third, middle[1] - third], middle - third])
    after = before + jitter * (2.0 * draws.uniforms((3, 2))[0] - 1.0)
    forward = np.linalg.solve(np.column_stack([before, np.ones(3)]), after).T
    back = np.linalg.inv(np.vstack([forward, [0.0, 0.0, 1.0]]))
    matrix, offset = back[:2, :2][::-1, ::-1], back[:2, 2][::-1]
    x = np.stack([affine_transform(x[..., c], matrix, offset, order=1, mode="mirror") for c in range(3)], axis=-1)
    moves = 2.0 * draws.uniforms((2, height, width), 1)[0][::-1] - 1.0
    moves = gaussian_filter(moves, (0.0, smoothness, smoothness), mode="reflect", truncate=3.0)
    places = np.indices((height, width)) + strength * moves
    return np.stack([map_coordinates(x[..., c], places, order=1, mode="reflect") for c in range(3)], axis=-1)


def _picture(x: Floats) -> Image.Image:
    return Image.fromarray(np.rint(255.0 * x).astype(np.uint8))


def _blurred(x: Floats, sigma: float) -> Floats:
    return gaussian_filter(x, (sigma, sigma, 0.0), mode="nearest", truncate=4.0)


def _blown(x: Floats, radius: int, sigma: float, degrees: float) -> Floats:
    """ImageMagick's motion blur: half a bell along a line of whole pixels, the border repeated."""
    height, width, _ = x.shape
    reach = 2 * radius
    padded = np.pad(x, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    taps = np.arange(reach + 1)
    places = [np.ceil(taps * f(math.radians(degrees)) - 0.5).astype(int) + reach for f in (math.sin, math.cos)]
    seen = [padded[row : row + height, column : column + width] for row, column in zip(*places, strict=True)]
    return np.average(seen, axis=0, weights=np.exp(-(taps**2) / (2.0 * sigma**2)))


def _zoomed(x: Floats, factor: float) -> Floats:
    """The middle enlarged, and of that the middle, as large as the picture was."""
    height, width, _ = x.shape
    kept = [math.ceil(size / factor) for size in (height, width)]
    top, left = (height - kept[0]) // 2, (width - kept[1]) // 2
    large = zoom(x[top : top + kept[0], left : left + kept[1]], (factor, factor, 1.0), order=1)
    top, left = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
    return large[top : top + height, left : left + width]


def _landscape(draws: Draws, size: int, decay: float, part: int = 0) -> Floats:
    """The diamond-square algorithm on a torus: every new point is the mean of four around it, and a shock."""
    side = max(2, 1 << (size - 1).bit_length())
    shocks = iter(2.0 * draws.uniforms((side**2 - 1,), part)[0] - 1.0)
    land = np.zeros((side, side))
    wobble, step = 100.0, side
    while step > 1:
        half = step // 2
        diagonal = [(-half, -half), (-half, half), (half, -half), (half, half)]
        straight = [(-half, 0), (half, 0), (0, -half), (0, half)]
        for first_row, first_column, around in ((half, half, diagonal), (0, half, straight), (half, 0, straight)):
            rows, columns = np.arange(first_row, side, step), np.arange(first_column, side, step)
            known = [land[np.ix_((rows + down) % side, (columns + across) % side)] for down, across in around]
            new = np.fromiter(shocks, float, count=rows.size * columns.size).reshape(rows.size, columns.size)
            land[np.ix_(rows, columns)] = sum(known) / 4.0 + wobble * wobble * new
        step, wobble = half, wobble / decay
    return (land - land.min()) / np.ptp(land)


# In the order in which the package counts its streams.
_FAMILIES = (
    *(_gaussian_noise, _gaussian_blur, _contrast, _brightness, _defocus_blur, _elastic_transform, _fog, _frost),
    *(_glass_blur, _impulse_noise, _jpeg_compression, _motion_blur, _pixelate, _saturate, _shot_noise, _snow),
    *(_spatter, _speckle_noise, _zoom_blur),
)
REFERENCES: dict[str, Callable[[Floats, int, Draws], Floats]] = {
    function.__name__.removeprefix("_"): function for function in _FAMILIES
}
