"""The result of a comparison of clips as text and for JSON."""
import math

from .clips import AXES

FIGURES = ("values that differ", "largest", "relative", "mean")


def figures(one):
    """FIGURES of a Difference, as texts."""
    return (f"{one.differing} of {math.prod(one.shape)}", f"{one.largest:.3g}",
            "" if one.relative is None else f"{one.relative:.2g}", f"{one.mean:.3g}")


def table(rows, left):
    """Lines of rows of texts; the first `left` columns are aligned to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" if i < left else f"{cell:>{width}}"
                      for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
            for row in rows]


class Report:
    """Gathers the comparisons of pairs of clips. `result`: 'same', 'different', 'not comparable' or
    'damaged'."""

    def __init__(self, a, b, matched):
        self._a, self._b = a, b
        self._lacking, self._notes = matched.lacking, list(matched.notes)
        self._reasons = []  # (name of a clip, why it cannot be compared)
        self._compared = 0
        self._different = []  # (name, Compared)
        self._changed, self._only = {}, {}  # request or dataset → [names of clips], an example
        self.result = "not comparable" if matched.lacking else "same"

    def add(self, name, compared):
        for request, values in compared.changed.items():
            self._changed.setdefault(request, ([], values))[0].append(name)
        for dataset in compared.only:
            self._only.setdefault(dataset, []).append(name)
        if compared.reasons:
            self._reasons += [(name, reason) for reason in compared.reasons]
            self.result = "not comparable"
            return
        self._compared += 1
        if not compared.same:
            self._different.append((name, compared))
            if self.result == "same":
                self.result = "different"

    def worst_video(self):
        """(name, Compared) of the clip with the lowest PSNR; None if no video differs."""
        videos = [one for one in self._different
                  if "video" in one[1].arrays and one[1].arrays["video"].differing]
        return min(videos, key=lambda one: one[1].arrays["video"].psnr, default=None)

    def _sorted(self):
        """Clips that differ, the lowest PSNR first; then those with the largest difference."""
        def key(one):
            video = one[1].arrays.get("video")
            return (video.psnr if video else math.inf,
                    -max(array.relative or 0 for array in one[1].arrays.values()))
        return sorted(self._different, key=key)

    # -- text -------------------------------------------------------------------------------------

    def as_text(self, most):
        lines = [f"A: {self._a}", f"B: {self._b}", *(f"note: {one}" for one in self._all_notes())]
        lines += [f"not comparable: {reason}" for reason in self._lacking]
        lines += [f"not comparable: {name}: {reason}" for name, reason in self._reasons[:most]]
        if len(self._reasons) > most:
            lines.append(f"not comparable: {len(self._reasons) - most} more reasons of other clips")
        same = self._compared - len(self._different)
        if same:
            lines.append(f"{_clips(same)}: the same bits")
        if self._different:
            lines += [f"{_clips(len(self._different))}: different", self._first(), ""]
            lines += self._table(most)
        return "\n".join(lines)

    def _all_notes(self):
        notes = list(self._notes)
        for request, (names, (a, b)) in self._changed.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            notes.append(f"{request} differs in {names[0]}{more}: {_short(a)} in A, "
                         f"{_short(b)} in B")
        for dataset, names in self._only.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            notes.append(f"only A or only B has {dataset} of {names[0]}{more}")
        return notes

    def _first(self):
        name, compared = self._different[0]
        dataset, array = compared.first
        place = ", ".join(f"{axis} {i}" for axis, i in zip(AXES[dataset], array.first))
        a, b = (f"{value:.9g}" for value in array.values)
        return f"first difference: {name}, {dataset}, {place}: {a} in A, {b} in B"

    def _table(self, most):
        rows = [("clip", "dataset", *FIGURES, "PSNR", "SSIM")]
        chosen = self._sorted()
        for name, compared in chosen[:most]:
            for dataset, one in compared.arrays.items():
                if one.differing:
                    rows.append((name, dataset, *figures(one), *_quality(one)))
        lines = table(rows, 2)
        if others := chosen[most:]:
            lines.append(f"and {len(others)} more{_range(others)}")
        return lines

    # -- JSON -------------------------------------------------------------------------------------

    def as_dict(self):
        """For JSON."""
        first = None
        if self._different:
            name, compared = self._different[0]
            dataset, array = compared.first
            first = {"clip": name, "dataset": dataset,
                     **dict(zip(AXES[dataset], array.first)),
                     "a": number(array.values[0]), "b": number(array.values[1])}
        return {
            "result": self.result, "a": str(self._a), "b": str(self._b),
            "compared": self._compared, "same": self._compared - len(self._different),
            "different": len(self._different), "first": first,
            "notes": self._all_notes(),
            "not_comparable": [*self._lacking, *(f"{name}: {why}" for name, why in self._reasons)],
            "clips": [{"clip": name, "datasets": {dataset: difference_as_json(one)
                                                  for dataset, one in compared.arrays.items()}}
                      for name, compared in self._sorted()]}


def difference_as_json(one):
    """A Difference."""
    found = {"shape": list(one.shape), "differing": one.differing,
             "largest": number(one.largest), "mean": number(one.mean)}
    if one.relative is not None:
        found["relative"] = number(one.relative)
    if one.first:
        found["first"] = list(one.first)
    if one.psnr is not None:
        found |= {"psnr": number(one.psnr), "ssim": one.ssim, "worst_frame": one.worst_frame}
    return found


def number(value):
    """JSON has no NaN and no infinity: these become text."""
    return value if math.isfinite(value) else str(value)


def _quality(one):
    return ("", "") if one.psnr is None else (f"{one.psnr:.2f} dB", f"{one.ssim:.5f}")


def _range(others):
    """Quality of the clips that are not listed."""
    videos = [one.arrays["video"] for _, one in others if "video" in one.arrays]
    if not videos:
        return ""
    psnr, ssim = [one.psnr for one in videos], [one.ssim for one in videos]
    return (f": PSNR {min(psnr):.2f} to {max(psnr):.2f} dB, "
            f"SSIM {min(ssim):.5f} to {max(ssim):.5f}")


def _clips(count):
    return f"{count} {'clip' if count == 1 else 'clips'}"


def _short(value):
    text = " ".join(str(value).split())
    return text if len(text) <= 120 else text[:119] + "…"
