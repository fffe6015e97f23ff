"""Tables of trace.h5 and job.h5 in tests: as structured arrays, of groups of columns in files.
Texts, and names of lanes, spans, places and purposes, are bytes."""
import h5py
import numpy as np

DIMENSIONS = {"spans": "span", "messages": "message", "counters": "sample", "ranks": "rank",
              "memory": "row", "states": "clip", "provenance/hosts": "rank"}
NAMES = ("lane", "name", "place", "purpose")


def table(file, name):
    """All rows. Numbers of other enumerations stay; meanings() has their words."""
    columns = {column: found for column, found in file[name].items()
               if column != DIMENSIONS[name] or found.dtype.kind == "i"}
    values = {}
    for column, found in columns.items():
        values[column] = found[()]
        if column in NAMES:
            words = np.array(meanings(file, f"{name}/{column}"), "S")
            values[column] = words[values[column]] if len(words) else values[column].astype("S1")
        elif found.dtype.kind == "O":
            values[column] = np.array([bytes(one) for one in found[()]] or [b""], "S")[:len(found)]
    made = np.empty(len(next(iter(values.values()))),
                    [(column, found.dtype) for column, found in values.items()])
    for column, found in values.items():
        made[column] = found
    return made


def meanings(file, column):
    """The words of an enumeration, for 0, 1, …"""
    return file[column].attrs["flag_meanings"].split()


def write_table(file, name, rows):
    """Writes such an array, in place of a table that is there."""
    if name in file:
        del file[name]
    group, dimension = file.create_group(name), DIMENSIONS[name]
    group.attrs["long_name"] = name
    for column in rows.dtype.names:
        values, words = rows[column], []
        if column in NAMES:
            found, values = np.unique(values, return_inverse=True)
            words, values = [one.decode() for one in found], values.astype("i2")
        elif values.dtype.kind == "S":
            values = values.astype(object)
        else:
            words = list(h5py.check_enum_dtype(values.dtype) or {})
            values = values.astype(values.dtype.base)
        texts = values.dtype.kind == "O"
        chunks = {} if texts or not len(rows) else {
            "chunks": (min(len(rows), 65536),), "compression": 1, "shuffle": True,
            "fletcher32": True}
        dataset = group.create_dataset(column, data=values, **chunks,
                                       dtype=h5py.string_dtype() if texts else values.dtype)
        if words:
            dataset.attrs["flag_values"] = np.arange(len(words), dtype=values.dtype)
            dataset.attrs["flag_meanings"] = " ".join(words)
    if dimension not in group:
        group.create_dataset(dimension, (len(rows),), ">f4").make_scale(
            f"This is a netCDF dimension but not a netCDF variable.{len(rows):10}")
