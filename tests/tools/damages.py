"""What can be wrong with a result file."""
import h5py


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
        file.attrs["format_version"] = 2


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
        rows = file["spans"][()]
        del file["spans"]
        file["spans"] = rows[["rank", "lane", "name", "start_ns"]].copy()
