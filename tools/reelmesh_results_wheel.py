"""Packs reelmesh_results as a wheel, for pip (PEP 517): nothing is downloaded, or written beside
the sources.
https://packaging.python.org/specifications/binary-distribution-format/"""
import base64
import hashlib
import pathlib
import zipfile

import reelmesh_results

PACKAGE = pathlib.Path(reelmesh_results.__file__).parent
SUFFIXES = (".py", ".typed", ".hpp", ".js", ".css", ".html", ".json")
NAME = f"reelmesh_results-{reelmesh_results.__version__}"
METADATA = f"""Metadata-Version: 2.1
Name: reelmesh_results
Version: {reelmesh_results.__version__}
Summary: Results of reelmesh: clips, spans, metrics of trainings, comparisons
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: h5py
Requires-Dist: numpy
Provides-Extra: pandas
Requires-Dist: pandas; extra == "pandas"
Provides-Extra: pictures
Requires-Dist: pillow; extra == "pictures"
Requires-Dist: matplotlib; extra == "pictures"
"""
WHEEL = """Wheel-Version: 1.0
Generator: reelmesh_results_wheel
Root-Is-Purelib: true
Tag: py3-none-any
"""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """What pip calls. → the name of the file that is made in wheel_directory."""
    paths = sorted(path for path in PACKAGE.rglob("*") if path.suffix in SUFFIXES)
    files = {str(path.relative_to(PACKAGE.parent)): path.read_bytes() for path in paths}
    files |= {f"{NAME}.dist-info/METADATA": METADATA.encode(),
              f"{NAME}.dist-info/WHEEL": WHEEL.encode()}
    record = f"{NAME}.dist-info/RECORD"
    lines = [f"{name},sha256={_hash(content)},{len(content)}\n" for name, content in files.items()]
    files[record] = "".join((*lines, f"{record},,\n")).encode()
    wheel = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the sources are those of reelmesh: use its repository")


def _hash(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
