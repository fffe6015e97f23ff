"""PSNR and SSIM of frames, in numpy."""
import numpy as np

LUMA = np.array([0.299, 0.587, 0.114])  # of ITU-R BT.601, as in the reference code of SSIM
SIGMA, RADIUS = 1.5, 5  # of the Gaussian window, 11 × 11
C1, C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


def psnr(mean_square):
    """Peak signal-to-noise ratio in dB of values from 0 to 255; inf if there is no difference."""
    return float("inf") if mean_square == 0 else float(10 * np.log10(255 ** 2 / mean_square))


def ssim(a, b):
    """Structural similarity of two frames, uint8 [height, width, 3]: Z. Wang, A. C. Bovik, H. R.
    Sheikh, E. P. Simoncelli, "Image quality assessment: from error visibility to structural
    similarity", IEEE Transactions on Image Processing 13(4), 2004. On luma, with the Gaussian
    window and constants of the paper, averaged over the places where the whole window lies in the
    frame. The window is smaller in frames with a side of less than 11 pixels."""
    radius = min(RADIUS, (min(a.shape[:2]) - 1) // 2)
    window = np.exp(-0.5 * (np.arange(-radius, radius + 1) / SIGMA) ** 2)
    window /= window.sum()
    a, b = a @ LUMA, b @ LUMA
    mean_a, mean_b = _filtered(a, window), _filtered(b, window)
    variance_a = _filtered(a * a, window) - mean_a * mean_a
    variance_b = _filtered(b * b, window) - mean_b * mean_b
    covariance = _filtered(a * b, window) - mean_a * mean_b
    similarity = ((2 * mean_a * mean_b + C1) * (2 * covariance + C2)
                  / ((mean_a ** 2 + mean_b ** 2 + C1) * (variance_a + variance_b + C2)))
    return float(similarity.mean())


def _filtered(values, window):
    """Convolution along both axes; smaller by the window's length − 1."""
    for axis in (0, 1):
        size = values.shape[axis] - len(window) + 1
        parts = (values[i:i + size] if axis == 0 else values[:, i:i + size]
                 for i in range(len(window)))
        values = sum(weight * part for weight, part in zip(window, parts))
    return values
