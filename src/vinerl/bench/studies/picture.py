"""What the pictures of studies share."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from vinerl.bench.pictures.plots import plt


def save(figure, path: Path, words: str, foot: Sequence[str] = ()) -> Path:
    """With what it shows at its head, and what it was made from at its foot."""
    width, height = figure.get_size_inches()
    head = wrap(words, int(13 * width))
    lines = [part for line in foot for part in wrap(line, int(20 * width))]
    above, below = (0.17 * len(head) + 0.05) / height, (0.12 * len(lines) + 0.06) / height
    figure.get_layout_engine().set(rect=(0, below, 1, 1 - above - below))
    figure.text(0.012, 1 - 0.05 / height, "\n".join(head), va="top")
    figure.text(0.012, 0.05 / height, "\n".join(lines), color="#8c8c8c", fontsize=6, va="bottom")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
