"""The result of a comparison of trainings as text and for JSON."""
from .comparison_report import FIGURES, difference_as_json, figures, number, table


def as_text(a, b, compared, most):
    """compared: see training_comparison. most: rows of the table."""
    lines = [f"A: {a}", f"B: {b}", *(f"note: {one}" for one in compared.notes),
             *(f"not comparable: {reason}" for reason in compared.lacking)]
    for what, arrays in ((f"{compared.steps} steps", compared.metrics),
                         (f"{len(compared.tensors)} tensors of the {compared.word}", compared.tensors)):
        differing = sum(bool(one.differing) for one in arrays.values())
        if arrays:
            lines.append(f"{what}: {'different' if differing else 'the same bits'}")
    if first := compared.first:
        lines += [_first(*first, compared), "", *_table(compared, most)]
    return "\n".join(lines)


def _first(name, one, compared):
    a, b = (f"{value:.9g}" for value in one.values)
    place = f"step {one.first[0]}, {name}" if name in compared.metrics else (
        f"{name}, at {list(one.first)}")
    return f"first difference: {place}: {a} in A, {b} in B"


def _table(compared, most):
    found = [(name, one) for name, one in {**compared.metrics, **compared.tensors}.items()
             if one.differing]
    lines = table([("array", *FIGURES), *((name, *figures(one)) for name, one in found[:most])], 1)
    return lines + ([f"and {len(found) - most} more"] if len(found) > most else [])


def as_dict(a, b, compared):
    """For JSON."""
    first = None
    if compared.first:
        name, one = compared.first
        first = {"array": name, "at": list(one.first), "a": number(one.values[0]),
                 "b": number(one.values[1])}
    return {
        "result": compared.result, "a": str(a), "b": str(b), "steps": compared.steps,
        "tensors": len(compared.tensors), "first": first, "notes": compared.notes,
        "not_comparable": compared.lacking,
        "metrics": {name: difference_as_json(one) for name, one in compared.metrics.items()},
        "different_tensors": {name: difference_as_json(one)
                              for name, one in compared.tensors.items() if one.differing}}
