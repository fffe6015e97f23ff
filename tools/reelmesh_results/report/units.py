"""Values in words, for the page and the text."""


def number(value):
    """1234567 → '1 234 567' with narrow spaces that do not break."""
    return f"{value:,}".replace(",", "\u202f")


def seconds(value):
    """'12.3 ms', '45.6 s', '12 min 30 s', '2 h 05 min', '5 d 3 h'; '–' for None."""
    if value is None:
        return "–"
    if value >= 100 * 3600:
        return f"{int(value) // 86400} d {int(value) % 86400 // 3600} h"
    if value >= 3600:
        return f"{int(value) // 3600} h {int(value) % 3600 // 60:02} min"
    if value >= 120:
        return f"{int(value) // 60} min {int(value) % 60:02} s"
    return _scaled(value, (("s", 1), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))


def size(value):
    """'12.3 MiB'."""
    if value is None:
        return "–"
    return _scaled(value, (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10),
                           ("B", 1)))


def rate(value, unit):
    """'12.3 GFLOP/s'; decimal prefixes, as machines' peaks are given."""
    if value is None:
        return "–"
    return _scaled(value, ((f"T{unit}", 1e12), (f"G{unit}", 1e9), (f"M{unit}", 1e6),
                           (f"k{unit}", 1e3), (unit, 1)))


def percent(value):
    if value is None:
        return "–"
    return f"{value * 100:.1f} %" if value < 0.0995 else f"{value * 100:.0f} %"


def signed_percent(value):
    """A difference in percent: '+3.2 %', '−12 %'."""
    shown = f"{abs(value):.1f}" if abs(value) < 9.95 else f"{abs(value):.0f}"
    return f"{'' if float(shown) == 0 else '+' if value > 0 else '−'}{shown} %"


def plain(value):
    """A pure number: '0.0123', '1.0e-4', '1 234'; '–' for None."""
    if value is None:
        return "–"
    if abs(value) >= 1000 and abs(value) < 1e6:
        return number(round(value))
    return f"{value:.4g}"


def _scaled(value, units):
    if not value:
        return f"0 {units[0][0] if units[0][0] == 's' else units[-1][0]}"
    unit, factor = next((one for one in units if value >= 0.9995 * one[1]), units[-1])
    scaled = value / factor
    return f"{scaled:.0f} {unit}" if scaled >= 99.95 or scaled == int(scaled) else (
        f"{scaled:#.3g} {unit}")


def plural(count, one):
    """'1 rank', '2 ranks'."""
    return f"{number(count)} {one if count == 1 else one + 's'}"


# Of a job with the status 'simulated'.
SIMULATED = "The job was not run: plan simulate has predicted its times, and there are no clips."


def not_complete(clips):
    """['2 failed', …]: how many clips are in each state other than 'complete'."""
    previews = [plural(clips["preview"], "preview")] if clips["preview"] else []
    return previews + [f"{number(clips[state])} {state}"
                       for state in ("failed", "damaged", "saved", "missing") if clips[state]]


def provenance_in_words(found, between):
    """(name, text) of what was run, without empty values and the rows of ranks. between: separates
    the parts of a value that has several."""
    for name, value in found.items():
        if isinstance(value, list) and name != "ranks":
            value = (" " if name == "command" else between).join(map(str, value))
        if isinstance(value, bool):
            value = "yes" if value else "no"
        if name != "ranks" and value not in ("", None):
            yield name.replace("_", " "), str(value)
