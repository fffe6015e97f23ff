#include "program.hpp"

#include <dnnl.h>
#include <hdf5.h>
// clang-format off
#include <cstdio>  // jpeglib.h needs it
#include <jpeglib.h>
// clang-format on
#include <png.h>
#include <spdlog/version.h>
#include <xxhash.h>

extern "C" {
#include <libavcodec/version.h>
#include <libavformat/version.h>
#include <libswscale/version.h>
}

#include <algorithm>
#include <boost/version.hpp>
#include <nlohmann/json.hpp>

#include "base/report.hpp"
#include "base/system.hpp"
#include "comm/group.hpp"
#include "ops/attention.hpp"
#include "tensor/device.hpp"
#include "version.hpp"

namespace reelmesh::app {
namespace {

std::string mpi_version() {
  // MPI allows this call before MPI_Init. The text may have several lines.
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  text.resize(std::min(text.find_first_of(",\n"), text.size()));
  const std::size_t v = text.find(" v");  // "Open MPI v4.1.4"
  return v == std::string::npos ? text : text.erase(v + 1, 1);
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

std::string dnnl_version_text() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

std::string xxhash_version() {
  const unsigned version = XXH_versionNumber();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string json_version() {
  return fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                     NLOHMANN_JSON_VERSION_PATCH);
}

std::string png_version() {
  const unsigned version = png_access_version_number();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// FFmpeg's libraries are loaded only to read a video: the versions compiled for.
std::string ffmpeg_version() {
  return fmt::format("libavformat {}, libavcodec {}, libswscale {}",
                     AV_STRINGIFY(LIBAVFORMAT_VERSION), AV_STRINGIFY(LIBAVCODEC_VERSION),
                     AV_STRINGIFY(LIBSWSCALE_VERSION));
}

// The version of a library that has no function for it: that of its file, or `otherwise`, with
// which the program was compiled.
std::string library_version(const char* library, const std::string& otherwise) {
  const std::string loaded = loaded_version(library);
  return loaded.empty() ? otherwise : loaded;
}

// Names and versions of the libraries of every build.
std::vector<std::pair<const char*, std::string>> libraries() {
  return {
      {"MPI", mpi_version()},
      {"HDF5", hdf5_version()},
      {"oneDNN", dnnl_version_text()},
      {"xxHash", xxhash_version()},
      {"Boost", library_version("libboost_program_options",
                                fmt::format("{}.{}.{}", BOOST_VERSION / 100000,
                                            BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100))},
      {"nlohmann-json", json_version()},
      {"fmt", library_version("libfmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000,
                                                    FMT_VERSION / 100 % 100, FMT_VERSION % 100))},
      {"spdlog", library_version("libspdlog", fmt::format("{}.{}.{}", SPDLOG_VER_MAJOR,
                                                          SPDLOG_VER_MINOR, SPDLOG_VER_PATCH))},
      {"sentencepiece", REELMESH_SENTENCEPIECE},
      {"utf8proc", REELMESH_UTF8PROC},
      {"libpng", png_version()},
      {"libjpeg-turbo", AV_STRINGIFY(LIBJPEG_TURBO_VERSION)},
      {"FFmpeg", ffmpeg_version()}};
}

}  // namespace

ProgramInfo program_info() {
  ProgramInfo info{.name = "reelmesh",
                   .version = REELMESH_VERSION,
                   .revision = REELMESH_REVISION,
                   .changed = REELMESH_CHANGED,
                   .compiler = REELMESH_COMPILER,
                   .compiler_flags = REELMESH_FLAGS,
                   .build_type = REELMESH_BUILD_TYPE};
  for (const auto& [name, version] : libraries()) {
    const bool is_named = std::string_view(name) == "MPI";  // "Open MPI 4.1.4"
    info.libraries.push_back(is_named ? version : fmt::format("{} {}", name, version));
  }
  return info;
}

std::string version_text() {
  Table table;
  const auto row = [&](const char* name, const std::string& value) {
    table.row({fmt::format("  {}: {}", name, value)});
  };
  row("backends", cuda_built ? "cpu, cuda" : "cpu");
  if (cuda_built) row("CUDA", cuda_versions());
  if (why_no_cuda().empty()) row("attention on GPUs", ops::attention_on_gpus());
  for (const auto& [name, version] : libraries()) row(name, version);
  const ProgramInfo info = program_info();
  row("compiler", info.compiler);
  return fmt::format("reelmesh {}\n{}", info.text(), table.str());
}

}  // namespace reelmesh::app
