#include "program.hpp"

#include <dnnl.h>
#include <hdf5.h>
#include <spdlog/version.h>
#include <xxhash.h>

#include <boost/version.hpp>
#include <nlohmann/json.hpp>

#include "base/report.hpp"
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
  return text.substr(0, text.find_first_of(",\n"));
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

}  // namespace

pipeline::ProgramInfo program_info() {
  return {.name = "reelmesh", .version = REELMESH_VERSION, .revision = REELMESH_REVISION};
}

std::string version_text() {
  Table table;
  const auto row = [&](const char* name, const std::string& value) {
    table.row({fmt::format("  {}: {}", name, value)});
  };
  row("backends", cuda_built ? "cpu, cuda" : "cpu");
  if (cuda_built) row("CUDA", cuda_versions());
  if (why_no_cuda().empty()) row("attention on GPUs", ops::attention_on_gpus());
  row("MPI", mpi_version());
  row("HDF5", hdf5_version());
  row("oneDNN", dnnl_version_text());
  const unsigned xxhash = XXH_versionNumber();
  row("xxHash", fmt::format("{}.{}.{}", xxhash / 10000, xxhash / 100 % 100, xxhash % 100));
  row("Boost", fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000,
                           BOOST_VERSION % 100));
  row("nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                   NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH));
  row("spdlog", fmt::format("{}.{}.{}", SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH));
  return fmt::format("reelmesh {} ({})\n{}", REELMESH_VERSION, REELMESH_REVISION, table.str());
}

}  // namespace reelmesh::app
