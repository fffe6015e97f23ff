#!/usr/bin/python3
"""The recipes in tools/packages name what tools/setup installs, and the versions of jobs/clusters.md.

Spack is not here, nor conda: the Spack recipe is imported with stand-ins for Spack's directives, the conda
recipe is read as text. SPACK_PACKAGES, the folder of a clone of github.com/spack/spack-packages, has the names,
variants and versions of Spack's recipes compared too; where the Python package py-rattler-build is installed,
it renders the conda recipe for both variants.
"""
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import types
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = SOURCE / "tools" / "packages"
SPACK = PACKAGES / "spack_repo" / "reelmesh" / "packages" / "reelmesh" / "package.py"
CONDA = PACKAGES / "conda" / "recipe.yaml"

# Debian's package: its names in Spack and on conda-forge; None: not needed there.
NAMES = {
    "g++": ("cxx", "compiler(cxx)"),
    "cmake": ("cmake", "cmake"),
    "ninja-build": ("ninja", "ninja"),
    "pkg-config": ("pkgconfig", "pkg-config"),
    "git": ("git", "git"),
    "libopenmpi-dev": ("mpi", "openmpi"),
    "libhdf5-openmpi-dev": ("hdf5", "hdf5"),
    "zlib1g-dev": ("zlib-api", "zlib"),
    "libboost-program-options-dev": ("boost", "libboost-devel"),
    "libdnnl-dev": ("onednn", "onednn"),
    "ocl-icd-opencl-dev": (None, None),  # only Debian's CMake files of oneDNN ask for OpenCL
    "libsentencepiece-dev": ("sentencepiece", "libsentencepiece"),
    "libprotobuf-dev": (None, "libprotobuf"),  # Spack's sentencepiece contains it
    "libutf8proc-dev": ("utf8proc", "libutf8proc"),
    "libxxhash-dev": ("xxhash", "xxhash"),
    "libpng-dev": ("libpng", "libpng"),
    "libjpeg-dev": ("jpeg", "libjpeg-turbo"),
    "libavformat-dev": ("ffmpeg", "ffmpeg"),
    "libavcodec-dev": ("ffmpeg", "ffmpeg"),
    "libswscale-dev": ("ffmpeg", "ffmpeg"),
    "nlohmann-json3-dev": ("nlohmann-json", "nlohmann_json"),
    "libspdlog-dev": ("spdlog", "spdlog"),
    "libfmt-dev": ("fmt", "fmt"),
    "openmpi-bin": ("mpi", "openmpi"),
    "python3": ("python", "python"),
    "python3-h5py": ("py-h5py", "h5py"),
    "python3-numpy": ("py-numpy", "numpy"),
    "python3-pil": ("py-pillow", "pillow"),
    "fonts-dejavu-core": (None, None),  # Matplotlib has these fonts
    "ffmpeg": ("ffmpeg", "ffmpeg"),
    "python3-matplotlib": ("py-matplotlib", "matplotlib-base"),
}
TESTS = {  # only Spack's recipe has tests
    "libgtest-dev": "googletest",
    "libgmock-dev": "googletest",
    "libbenchmark-dev": "benchmark",
    "clang-format": None,  # the recipes are for released sources
    "hdf5-tools": "hdf5",
    "e2fsprogs": "e2fsprogs",
    "groff-base": None,  # tests of the man page and of completion leave out what is missing
    "zsh": None,
    "fish": None,
    "python3-xarray": "py-xarray",
    "python3-h5netcdf": "py-h5netcdf",
    "python3-netcdf4": "py-netcdf4",
    "python3-jsonschema": "py-jsonschema",
}
# PyPI's packages of CUDA, likewise. Spack's package cuda has the whole toolkit.
CUDA = {
    "nvidia-cuda-nvcc": ("cuda", "compiler(cuda)"),
    "nvidia-cuda-crt": ("cuda", "compiler(cuda)"),
    "nvidia-nvvm": ("cuda", "compiler(cuda)"),
    "nvidia-cuda-runtime": ("cuda", "cuda-cudart-static"),
    "nvidia-cuda-cccl": ("cuda", "cuda-cudart-dev"),  # which needs it
    "nvidia-nvtx": ("cuda", "cuda-nvtx-dev"),
    "nvidia-cublas": ("cuda", "libcublas-dev"),
    "nvidia-cudnn-cu13": ("cudnn", "cudnn"),
    "nvidia-cuda-nvrtc": ("cuda", "cuda-nvrtc"),
    "nvidia-nccl-cu13": ("nccl", "nccl"),
}
MORE_OF_SPACK = {"c"}
MORE_OF_CONDA = {"compiler(c)", "stdlib(c)", "cuda-version"}


def setup(*arguments):
    done = subprocess.run([SOURCE / "tools" / "setup", "--print", *arguments], capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stdout.split(), done.stderr


class Spack:
    """The recipe's directives, as they are called when its class is made."""

    def __init__(self):
        self.depends, self.variants, self.versions, self.conditions = [], {}, [], []

        @contextlib.contextmanager
        def when(condition):
            self.conditions.append(condition)
            yield
            self.conditions.pop()

        class Package:
            @staticmethod
            def define(name, value):
                if isinstance(value, (list, tuple)):
                    value = ";".join(value)
                return f"-D{name}={'ON' if value is True else 'OFF' if value is False else value}"

            def define_from_variant(self, name, variant):
                if variant not in recipe.variants:
                    raise KeyError(variant)
                return self.define(name, self.spec.satisfies(f"+{variant}"))

        recipe = self
        package = types.ModuleType("spack.package")
        package.depends_on = lambda spec, when=None, type=("build", "link"): self.depends.append(
            (spec, [*self.conditions, *([when] if when else [])]))
        package.variant = lambda name, **more: self.variants.update({name: more})
        package.version = lambda name, **more: self.versions.append(name)
        package.generator = lambda name: self.depends.append((name, []))
        package.license = package.conflicts = lambda *_, **__: None
        package.when = when
        modules = {"spack": types.ModuleType("spack"), "spack.package": package}
        for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
            modules[name] = types.ModuleType(name)
        for name, classes in (("cmake", "CMakePackage"), ("cuda", "CudaPackage")):
            module = types.ModuleType(f"spack_repo.builtin.build_systems.{name}")
            setattr(module, classes, type(classes, (Package,), {}))
            modules[module.__name__] = module
        self.variants.update(cuda={"default": False}, cuda_arch={})  # CudaPackage's
        sys.modules.update(modules)
        try:
            names = {"__name__": "recipe", "__file__": str(SPACK)}
            exec(compile(SPACK.read_text(encoding="utf-8"), SPACK, "exec"), names)
        finally:
            for name in modules:
                del sys.modules[name]
        self.package = names["Reelmesh"]

    def names(self):
        return {re.match(r"[\w-]+", spec)[0] for spec, _ in self.depends}

    def arguments(self, *variants, architectures=("none",)):
        made = self.package()
        made.spec = types.SimpleNamespace(
            satisfies=lambda variant: variant in variants,
            variants={"cuda_arch": types.SimpleNamespace(value=architectures)})
        return made.cmake_args()


def conda_requirements():
    """Lines of the recipe's requirements, those with a condition too: name and constraint."""
    text = CONDA.read_text(encoding="utf-8")
    text = text[text.index("\nrequirements:"):text.index("\ntests:")]
    found = {}
    for line in text.splitlines():
        line = re.sub(r"^\s*(- |then: )+", "", line)
        line = re.sub(r"\$\{\{ (\w+)\(\"(\w+)\"\) \}\}", r"\1(\2)", line)
        if line and not re.match(r"\s*(#|if:|\w+:)", line):
            name, _, constraint = line.partition(" ")
            found[name] = constraint
    return found


class Recipes(unittest.TestCase):
    maxDiff = None

    def test_both_have_what_tools_setup_installs(self):
        _, listed, _ = setup("--only", "build,libraries,run")
        self.assertEqual(sorted(listed), sorted(NAMES))
        _, cuda, _ = setup("--cuda", "folder")
        self.assertEqual([line.partition("==")[0] for line in cuda], list(CUDA))
        _, tests, _ = setup("--only", "tests")
        self.assertEqual(sorted(tests), sorted(TESTS))
        pairs = [*NAMES.values(), *CUDA.values()]
        spack = {pair[0] for pair in pairs} | set(TESTS.values()) | MORE_OF_SPACK
        conda = {pair[1] for pair in pairs} | MORE_OF_CONDA
        self.assertEqual(sorted(Spack().names()), sorted(spack - {None}))
        self.assertEqual(sorted(conda_requirements()), sorted(conda - {None}))

    def test_both_need_the_same_versions(self):
        least = {}
        for spec, _ in Spack().depends:
            name, version = re.match(r"([\w-]+)(?:@([\d.]+))?", spec).groups()
            if version:
                least[name] = version
        conda = conda_requirements()
        compared = 0
        for spack_name, conda_name in {*NAMES.values(), *CUDA.values()}:
            found = re.match(r">=([\d.]+)", conda.get(conda_name, ""))
            if spack_name in least and found and spack_name != "mpi":  # there, of the standard
                compared += 1
                self.assertEqual(found[1], least[spack_name], conda_name)
        self.assertGreaterEqual(compared, 12)

    def test_recipe_and_citation_have_the_version(self):
        project = re.search(r"project\(reelmesh VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]
        recipe = re.search(r'^  version: "(.*)"$', CONDA.read_text(encoding="utf-8"), re.MULTILINE)[1]
        self.assertEqual(recipe, project, "version in tools/packages/conda/recipe.yaml")
        cited = re.search(r"^version: (.*)$", (SOURCE / "CITATION.cff").read_text(), re.MULTILINE)[1]
        self.assertEqual(cited, project, "version in CITATION.cff")

    def test_choices_are_those_of_cmake(self):
        recipe = Spack()
        self.assertEqual(recipe.arguments(), ["-DREELMESH_WERROR=OFF", "-DREELMESH_TESTS=OFF",
                                              "-DREELMESH_CUDA=OFF"])
        self.assertEqual(recipe.arguments("+tests", "+cuda")[1:],
                         ["-DREELMESH_TESTS=ON", "-DREELMESH_CUDA=ON",
                          "-DREELMESH_CUDA_ARCHITECTURES=ALL"])
        self.assertEqual(recipe.arguments("+cuda", architectures=("80", "90"))[-1],
                         "-DREELMESH_CUDA_ARCHITECTURES=80;90")
        known = "".join((SOURCE / name).read_text(encoding="utf-8")
                        for name in ("CMakeLists.txt", "lib/cuda.cmake"))
        for file in (SPACK, CONDA, PACKAGES / "Containerfile", SOURCE / "tools" / "container.def"):
            used = set(re.findall(r"REELMESH_\w+", file.read_text(encoding="utf-8")))
            self.assertGreaterEqual(len(used), 2, file)
            for name in used:
                self.assertRegex(known, rf"(option\(|set\(|find_program\(){name}\b", file)

    def test_the_spack_recipe_is_a_repository_of_one_package(self):
        recipe = Spack()
        self.assertEqual(recipe.versions, ["main"])
        self.assertEqual(recipe.package.git, str(SOURCE))
        self.assertEqual(set(recipe.variants), {"tests", "cuda", "cuda_arch"})
        self.assertIn("namespace: reelmesh", (SPACK.parents[2] / "repo.yaml").read_text(encoding="utf-8"))

    def test_images_install_by_tools_setup_alone(self):
        for file in (PACKAGES / "Containerfile", SOURCE / "tools" / "container.def"):
            text = file.read_text(encoding="utf-8")
            self.assertNotRegex(text, r"(apt|apt-get|dpkg|pip) (\S+ )*(-i|install)", file)
            self.assertRegex(text, r"tools/setup --only build,libraries ", file)
            self.assertRegex(text, r"tools/setup --only run \S*reelmesh\.deb", file)

    def test_setup_says_what_it_does_not_know(self):
        for arguments, named in ((["--only", "build,tools"], "'tools'"), (["--everything"], "'--everything'"),
                                 (["--only"], "--only")):
            status, printed, errors = setup(*arguments)
            self.assertEqual((status, printed), (64, []), arguments)
            self.assertIn(named, errors)
        status, printed, _ = setup("--only", "build", "slurmd")
        self.assertEqual((status, printed[0], printed[-1]), (0, "g++", "slurmd"))

    @unittest.skipUnless("SPACK_PACKAGES" in os.environ, "SPACK_PACKAGES names no clone of spack-packages")
    def test_spack_has_these_packages(self):
        repository = pathlib.Path(os.environ["SPACK_PACKAGES"], "repos", "spack_repo", "builtin")
        files = {path.parent.name: path for path in repository.glob("packages/*/package.py")}
        virtual = "".join(path.read_text(encoding="utf-8") for path in files.values())
        for spec, conditions in Spack().depends:
            name, versions, rest = re.fullmatch(r"([\w-]+)(?:@(\S*?))?((?:[+ ].*)?)", spec).groups()
            if name in ("c", "cxx"):
                continue
            folder = name.replace("-", "_")
            if folder not in files or "virtual = True" in files[folder].read_text(encoding="utf-8"):
                self.assertRegex(virtual, rf'provides\((\n\s+)?"{name}"', spec)
                continue
            recipe = files[folder].read_text(encoding="utf-8")
            for variant in re.findall(r"\+(\w+)|(\w+)=", rest):
                # Boost makes variants of a list of libraries.
                self.assertRegex(recipe, rf'"{"".join(variant)}"', spec)
            has = re.findall(r'(?:version\(\s*|^\s+)"(\d[\d.-]*)"', recipe, re.MULTILINE)
            if versions:
                fits = [version for version in has if within(version, versions)]
                self.assertTrue(fits, f"{spec}: found {sorted(set(has))}")
                print(f"{spec} {' '.join(conditions)}: {len(fits)} versions, such as {fits[0]}")

    def test_the_conda_recipe_is_rendered(self):
        try:
            import rattler_build
        except ImportError:
            self.skipTest("the Python package py-rattler-build is not installed")
        recipe = rattler_build.Stage0Recipe.from_file(CONDA)
        variants = rattler_build.VariantConfig.from_file(CONDA.with_name("variants.yaml"))
        rendered = {one.variant["cuda_compiler_version"]: one.recipe.to_dict()
                    for one in recipe.render(variants)}
        self.assertEqual(sorted(rendered), ["13.0", "None"])
        for version, one in rendered.items():
            host = one["requirements"]["host"]
            self.assertEqual(any(line.startswith("nccl") for line in host), version != "None")
            self.assertIn("cuda=ON" if version != "None" else "cuda=OFF", one["build"]["script"])
            self.assertTrue(one["build"]["string"].startswith("cuda130_" if version != "None" else "cpu_"))


def within(version, bounds):
    """As Spack reads them: 1.10: is 1.10 or more, 1.10:1.14 also at most 1.14.x, 9 is 9.x."""
    def numbers(text):
        return [int(part) for part in re.findall(r"\d+", text)]
    first, colon, last = bounds.partition(":")
    if not colon:
        last = first
    own = numbers(version)
    return own >= numbers(first) and (not last or own[:len(numbers(last))] <= numbers(last))


if __name__ == "__main__":
    unittest.main(verbosity=2)
