"""tools/result_files.md says what result files hold (and lib/store/README.md restart files): all
datasets, columns and attributes of files of a job are in their tables with types, dimensions and
units, and the files have all that is in the tables, unless their meaning says "only ..."."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import h5py

from media import MediaReference
from support import Reference, Scratch, clip_file, command_of, main, start
from tables import table

SOURCE = pathlib.Path(os.environ["REELMESH_SOURCE"])
sys.path.insert(0, str(SOURCE / "tools"))
from reelmesh_results import span_names  # noqa: E402

PAGES = ("tools/result_files.md", "lib/store/README.md")  # restart files are for developers
KINDS = ("attributes", "datasets", "columns")
LATENTS = "latent_frame, latent_channel, latent_height, latent_width"
# Attributes of each file and dataset, from the section on all files; those of dimension scales.
OF_DATASETS = {"long_name", "units", "flag_values", "flag_meanings", "checksum", "coordinates"}
OF_SCALES = {"CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS"}


def is_optional(cells):
    return re.search(r"\bonly (with|if|for|while)\b", cells["meaning"]) is not None


class Tables:
    """The tables of a section: by the path in a heading ("" above the first one) and their kind,
    which is the language of a fenced block ("attributes", "datasets", "columns"), name →
    cells. A line of a block has names, type and meaning with two spaces or more between them; a
    type is followed by dimensions in brackets, if there are any, and a unit."""

    def __init__(self, section):
        self.rows, path, kind = {}, "", None
        for line in section.splitlines():
            if line.startswith("### "):
                path = line[4:].strip()
            elif line.startswith("```"):
                kind = None if kind else line[3:].strip() or "text"
            elif kind in KINDS:
                self.add(self.rows.setdefault((path, kind), {}), line)

    @staticmethod
    def add(table, line):
        names, types, meaning = (re.split(r" {2,}", line, maxsplit=2) + [""])[:3]
        names = [name for name in names.split(", ") if name != "…"]
        found = re.findall(r"(\w+)(?: \[([^\]]*)\])?(?: ([^,]+))?(?:, |$)", types)
        for i, name in enumerate(names):
            dtype, dimensions, unit = found[i] if len(found) == len(names) else found[0]
            dimensions = dimensions.replace("latents", LATENTS)
            table[name] = {"type": dtype, "dimensions": dimensions.split(", "), "unit": unit,
                           "meaning": meaning}

    def of(self, path, kind):
        return self.rows.get((path, kind), {})


def sections():
    return {part.split("\n", 1)[0].strip(): part for page in PAGES
            for part in re.split(r"^## ", (SOURCE / page).read_text(), flags=re.M)[1:]}


def attributes_of_files():
    """Those that each file has."""
    return {name: cells for name, cells in
            Tables(sections()["All HDF5 files"]).of("", "attributes").items()
            if cells["meaning"].startswith("of each file")}


def type_of(dtype, shape=()):
    """As the page writes it. shape: of an attribute."""
    if h5py.check_string_dtype(dtype) is not None and dtype.kind == "O":
        return "texts" if shape else "text"
    return dtype.name


def attribute_type(item, name):
    attribute = h5py.h5a.open(item.id, name.encode())
    found = type_of(attribute.dtype, attribute.shape)
    return "flag" if found == "int8" else found


class DocumentedTest(Scratch):
    def setUp(self):
        super().setUp()
        self.output = self.folder / "output"
        self.options = Reference("rotary").options(
            self.output, sample__steps=3, prompt__text=["one", "two"], output__embeddings="yes",
            trace__level="ops")

    def compare(self, what, found, documented):
        """found: names."""
        self.assertEqual(set(found) - set(documented), set(), f"{what}: not on the page")
        needed = {name for name, cells in documented.items() if not is_optional(cells)}
        self.assertEqual(needed - set(found), set(), f"{what}: on the page, not in the file")

    def check_attributes(self, where, item, documented):
        self.compare(f"attributes of {where}", item.attrs, documented)
        for name in item.attrs:
            self.assertEqual(attribute_type(item, name), documented[name]["type"],
                             f"attribute {name} of {where}")

    def check_dataset(self, where, dataset, cells):
        self.assertEqual(type_of(dataset.dtype), cells["type"], where)
        dimensions = cells["dimensions"]
        self.assertEqual(len(dataset.shape), len(dimensions), where)
        labels = [dim.label for dim in dataset.dims]
        if any(labels):
            self.assertEqual(labels, dimensions, where)
        attributes = set(dataset.attrs) - OF_SCALES
        self.assertLessEqual(attributes, OF_DATASETS, where)
        self.assertIn("long_name", attributes, where)
        number = "" if cells["type"] == "text" else "1"
        self.assertEqual(dataset.attrs["units"], cells["unit"] or number, where)

    def check_table(self, where, group, dimension, documented):
        self.assertEqual(set(group.attrs), {"long_name"}, where)
        self.compare(f"columns of {where}", set(group) - ({dimension} - set(documented)),
                     documented)
        for name, cells in documented.items():
            column, of_column = group[name], f"{where}: {name}"
            self.assertTrue(column.attrs["long_name"], of_column)
            self.assertEqual(column.attrs["units"], cells["unit"], of_column)
            self.assertLessEqual(set(column.attrs) - OF_SCALES, OF_DATASETS, of_column)
            self.assertEqual("enum" if "flag_meanings" in column.attrs else type_of(column.dtype),
                             cells["type"], of_column)
            scale = column if name == dimension else column.dims[0][0]
            self.assertEqual((scale, column.shape), (group[dimension], group[dimension].shape))

    def check_group(self, where, group, datasets, scales=True):
        """scales: each dimension has a dataset with its indices."""
        if scales:
            used = {dimension for name, cells in datasets.items() if name in group
                    for dimension in cells["dimensions"]}
            datasets = {name: {"type": "int32", "dimensions": [name], "unit": "", "meaning": ""}
                        for name in used} | datasets
        found = {name: item for name, item in group.items()
                 if isinstance(group.get(name, getlink=True), h5py.HardLink) and
                 isinstance(item, h5py.Dataset)}
        self.compare(f"datasets of {where}", found, datasets)
        for name, dataset in found.items():
            self.check_dataset(f"{where}: {name}", dataset, datasets[name])

    def check_tables(self, where, file, tables):
        """All tables of a file; `tables` has their columns below headings with their paths."""
        documented = {name: cells for name, cells in tables.of("", "datasets").items()
                      if cells["type"] == "table"}
        found = {f"/{name}" for name in ("spans", "messages", "counters", "ranks", "memory",
                                         "states", "provenance/hosts") if name in file}
        self.assertEqual(set(documented), found, where)
        for name, cells in documented.items():
            self.check_table(f"{where}: {name}", file[name], *cells["dimensions"],
                             tables.of(name, "columns"))

    @staticmethod
    def at_root(datasets):
        return {name.removeprefix("/"): cells for name, cells in datasets.items()
                if "/" not in name.removeprefix("/") and cells["type"] != "table"}

    def check_spans(self, spans):
        for name, lane in set(zip(spans["name"], spans["lane"])):
            self.assertEqual(lane.decode(), span_names.SPANS[name.decode()].lane, name)

    def check_file(self, path, tables, attributes=None, scales=False):
        """attributes: those that the file has beside the ones of its section."""
        with h5py.File(path, "r") as file:
            self.check_attributes(path.name, file, attributes_of_files() | (attributes or {}) |
                                  tables.of("", "attributes"))
            self.check_group(path.name, file, self.at_root(tables.of("", "datasets")), scales)
            self.check_tables(path.name, file, tables)
            if "spans" in file:
                self.check_spans(table(file, "spans"))

    def test_clip_index_and_trace(self):
        self.make(self.options)
        parts = sections()
        self.check_file(clip_file(self.output), Tables(parts["Clips"]), scales=True)

        tables = Tables(parts["job.h5"])
        self.check_file(self.output / "job.h5", tables)
        with h5py.File(self.output / "job.h5", "r") as job:
            self.assertEqual(set(job), {"clip", "clips", "provenance", "requests", "states", "trace",
                                        "videos"})
            self.check_attributes("/provenance", job["provenance"],
                                  tables.of("/provenance", "attributes"))
            self.assertEqual(list(job["provenance"]), ["hosts"])
            self.assertEqual(list(job["videos"]), ["16x112x48"])
            self.check_group("/videos", job["videos/16x112x48"],
                             tables.of("/videos/FRAMESxHEIGHTxWIDTH", "datasets"))

        self.check_file(self.output / "trace.h5", Tables(parts["trace.h5"]))

    def check_restart_file(self, options):
        job = start(command_of(options | {"sample.steps": 300, "restart.every": 1}),
                    stderr=subprocess.DEVNULL)
        path = self.output / "restart" / "000000.h5"
        while not path.exists() and job.poll() is None:
            time.sleep(0.01)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(60), 75)
        parts = sections()
        self.check_file(path, Tables(parts["Restart files"]),
                        Tables(parts["Clips"]).of("", "attributes"))

    def test_restart_file(self):
        self.check_restart_file(self.options)

    def test_files_of_clips_that_begin_with_an_image_or_a_video(self):
        parts = sections()
        for kind in ("i2v", "sincos"):
            with self.subTest(kind=kind):
                reference = MediaReference(kind)
                self.output = self.folder / kind
                options = reference.options(
                    self.output, prompt__file=reference.prompt_file(self.folder),
                    output__if_exists="replace")
                self.check_restart_file(options)
                self.make(options)
                self.check_file(clip_file(self.output), Tables(parts["Clips"]), scales=True)
                self.check_file(self.output / "trace.h5", Tables(parts["trace.h5"]))
                with h5py.File(self.output / "job.h5") as job:
                    tables = Tables(parts["job.h5"])
                    self.check_attributes("job.h5", job,
                                          attributes_of_files() | tables.of("", "attributes"))
                    self.check_attributes("/provenance", job["provenance"],
                                          tables.of("/provenance", "attributes"))

    def test_every_file_has_the_attributes_of_all_files(self):
        self.make(self.options)
        documented = Tables(sections()["All HDF5 files"]).of("", "attributes")
        self.assertEqual(set(documented), OF_DATASETS | {"format_version", "title"})
        for path, version in ((clip_file(self.output), 1), (self.output / "job.h5", 2)):
            with h5py.File(path, "r") as file:
                self.assertEqual(file.attrs["format_version"], version)
                self.assertIn("of reelmesh", file.attrs["title"])


if __name__ == "__main__":
    main()
