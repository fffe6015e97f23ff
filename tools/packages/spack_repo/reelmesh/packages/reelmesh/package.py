# SPDX-License-Identifier: Apache-2.0
import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Reelmesh(CMakePackage, CudaPackage):
    """Makes videos from text, images and videos with diffusion transformers (CogVideoX, Wan,
    Open-Sora), and trains these, on any number of MPI ranks, with the same bits on each."""

    license("Apache-2.0")

    # The clone that this recipe lies in.
    git = str(pathlib.Path(__file__).resolve().parents[6])

    version("main", branch="main")

    generator("ninja")

    variant("tests", default=False, description="Build the tests")

    depends_on("c", type="build")  # FindMPI and FindHDF5 look for C interfaces
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("git", type="build")  # the revision in --version

    # Upper bounds: a later major version has not been tried.
    depends_on("mpi@3.1:")  # Open MPI 4.1 and 5 were tried
    depends_on("hdf5@1.10:1.14+mpi+hl")
    depends_on("zlib-api")
    depends_on("boost@1.74:+program_options")
    depends_on("onednn@2.6:3 cpu_runtime=omp")
    depends_on("sentencepiece@0.1.97:")
    depends_on("utf8proc@2.6:2")
    depends_on("xxhash@0.8:")
    depends_on("libpng@1.6:")
    depends_on("jpeg")
    depends_on("ffmpeg@5.1:7+libx264")  # the tools write MP4s
    depends_on("nlohmann-json@3.11:")
    depends_on("spdlog@1.10:")
    depends_on("fmt@9.1:10")

    with when("+tests"):
        depends_on("googletest@1.12:+gmock")
        depends_on("benchmark@1.7:")
        depends_on("e2fsprogs", type="test")  # chattr
        depends_on("py-xarray", type="test")
        depends_on("py-h5netcdf", type="test")
        depends_on("py-netcdf4", type="test")
        depends_on("py-jsonschema", type="test")

    with when("+cuda"):
        depends_on("cuda@12:13")
        depends_on("cudnn@9")
        depends_on("nccl@2")

    # The tools reelmesh-*.
    depends_on("python@3.9:", type="run")
    depends_on("py-h5py", type="run")
    depends_on("py-numpy", type="run")
    depends_on("py-pillow", type="run")
    depends_on("py-matplotlib", type="run")

    conflicts("%gcc@:11", msg="C++20 as GCC 12 has it")

    def cmake_args(self):
        args = [
            self.define("REELMESH_WERROR", False),
            self.define_from_variant("REELMESH_TESTS", "tests"),
            self.define_from_variant("REELMESH_CUDA", "cuda"),
        ]
        if self.spec.satisfies("+cuda"):
            chosen = [value for value in self.spec.variants["cuda_arch"].value if value != "none"]
            args.append(self.define("REELMESH_CUDA_ARCHITECTURES", chosen or "ALL"))
        return args
