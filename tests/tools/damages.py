"""What can be wrong with a result file."""
import zlib

import h5py
import numpy as np
from tables import table, write_table


def truncated(path):
    path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def foreign(path):
    path.write_text("a letter, and no HDF5\n" * 100)


def foreign_hdf5(path):
    with h5py.File(path, "w") as file:
        file["temperature"] = [1.0, 2.0]


def newer(path):
    with h5py.File(path, "r+") as file:
        file.attrs["format_version"] = 3


def half_written(path):
    """The length is right, but most blocks have not reached the disk."""
    content = path.read_bytes()
    path.write_bytes(content[:512] + bytes(len(content) - 512))


def a_folder(path):
    path.unlink()
    path.mkdir()


def other_bits(path):
    """Of all chunks of the video; they have checksums."""
    with h5py.File(path) as file:
        video = file["video"].id
        chunks = [video.get_chunk_info(i) for i in range(video.get_num_chunks())]
    content = bytearray(path.read_bytes())
    for chunk in chunks:
        content[chunk.byte_offset + chunk.size // 2] ^= 255
    path.write_bytes(content)


def frames_that_are_missing(path):
    """Chunks that were not written are read as zeros by HDF5."""
    with h5py.File(path, "r+") as file:
        shape, chunks = file["video"].shape, file["video"].chunks
        first = file["video"][0]
        del file["video"]
        file.create_dataset("video", (shape[0] + 1, *shape[1:]), "u1", chunks=chunks)[0] = first


def a_table_that_is_missing(path):
    with h5py.File(path, "r+") as file:
        del file["ranks"]


def a_table_without_a_column(path):
    with h5py.File(path, "r+") as file:
        rows = table(file, "spans")
        write_table(file, "spans", rows[["rank", "lane", "name", "start_ns"]].copy())


# What others could put into a file, so that a tool reads something else, crashes or never ends.
# SECRET: bytes of another file beside it.

SECRET = b"a secret, which is in another file. "


def _secret(path, size):
    other = path.with_name("other")
    other.write_bytes((SECRET * (size // len(SECRET) + 1))[:size])
    return other


def _replaced(path, name, make):
    """Replaces the dataset of this name by make(file, shape, dtype)."""
    with h5py.File(path, "r+") as file:
        shape, dtype = file[name].shape, file[name].dtype
        del file[name]
        make(file, shape, dtype)


def values_in_another_file(path):
    def make(file, shape, dtype):
        size = int(np.prod(shape)) * dtype.itemsize
        file.create_dataset("video", shape, dtype, external=[(str(_secret(path, size)), 0, size)])
    _replaced(path, "video", make)


def _other_hdf5(path, name, shape, dtype):
    other = path.with_name("other")
    with h5py.File(other, "w") as file:
        file.create_dataset(name, shape, dtype, fillvalue=7)
    return other


def a_link_to_another_file(path):
    _replaced(path, "video", lambda file, shape, dtype: file.__setitem__("video", h5py.ExternalLink(
        _other_hdf5(path, "video", shape, dtype), "video")))


def a_link_within_the_file(path):
    with h5py.File(path, "r+") as file:
        file.move("video", "elsewhere")
        file["video"] = h5py.SoftLink("/elsewhere")


def a_virtual_dataset(path):
    def make(file, shape, dtype):
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(_other_hdf5(path, "video", shape, dtype), "video", shape)
        file.create_virtual_dataset("video", layout)
    _replaced(path, "video", make)


def _first_chunk(path, content, left_out):
    with h5py.File(path, "r+") as file:
        file["video"].id.write_direct_chunk((0, 0, 0, 0), content, left_out)


def a_chunk_of_2_bytes(path):
    _first_chunk(path, b"xy", 0)


def a_short_chunk_without_filters(path):
    _first_chunk(path, b"xy", 0b111)


def a_chunk_that_inflates_to_less(path):
    _first_chunk(path, zlib.compress(b"x"), 0b101)


def terabytes_that_are_missing(path):
    _replaced(path, "video", lambda file, shape, dtype: file.create_dataset(
        "video", (10 ** 6, 1000, 1000, 3), dtype, chunks=(1, 1000, 1000, 3)))


def provenance_in_another_file(path):
    with h5py.File(path, "r+") as file:
        del file["provenance"]
        file["provenance"] = h5py.ExternalLink(_other_hdf5(path, "video", (1,), "u1"), "/")


def _plan(path, content):
    with h5py.File(path, "r+") as file:
        file.attrs["plan_json"] = content


def a_deep_plan(path):
    _plan(path, '{"denoise": ' + "[" * 30000 + "]" * 30000 + "}")


def a_plan_of_another_type(path):
    _plan(path, '{"denoise": 5}')


def a_plan_of_many_ranks(path):
    _plan(path, '{"denoise": [{"first": 0, "count": 1e300}]}')


def _requests(path, lines):
    with h5py.File(path, "r+") as file:
        del file["requests"]
        file.create_dataset("requests", data=lines, dtype=h5py.string_dtype())


def a_deep_request(path):
    _requests(path, ['{"prompt": ' * 500 + "0" + "}" * 500])


def a_plan_of_many_groups(path):
    _plan(path, '{"denoise": [%s]}' % ", ".join(['{"first": 0, "count": 1000000}'] * 1000))


def _states_of(path, clip):
    with h5py.File(path, "r+") as file:
        rows = table(file, "states")
        rows["clip"][0] = clip
        write_table(file, "states", rows)


def a_clip_below_zero(path):
    _states_of(path, -5)


def a_clip_beyond_a_million(path):
    _states_of(path, 10 ** 6)


def a_request_with_infinity(path):
    _requests(path, ['{"guidance": Infinity}'])


def a_trillion_requests(path):
    with h5py.File(path, "r+") as file:
        del file["requests"]
        file.create_dataset("requests", (10 ** 12,), h5py.string_dtype())


def a_trillion_spans(path):
    with h5py.File(path, "r+") as file:
        for name, column in file["spans"].items():
            dtype, chunks = column.dtype, column.chunks
            del file["spans"][name]
            file["spans"].create_dataset(name, (10 ** 12,), dtype, chunks=chunks)


def _last_span(path, **values):
    with h5py.File(path, "r+") as file:
        rows = table(file, "spans")
        for name, value in values.items():
            rows[name][-1] = value
        write_table(file, "spans", rows)


def a_span_at_the_end_of_time(path):
    _last_span(path, start_ns=2 ** 63 - 1, duration_ns=2 ** 63 - 1)


def a_span_before_time(path):
    _last_span(path, start_ns=-2 ** 63)


def times_that_are_texts(path):
    with h5py.File(path, "r+") as file:
        rows = table(file, "spans")
        del file["spans/start_ns"]
        file["spans/start_ns"] = np.zeros(len(rows), "S8")
