#include "store/provenance.hpp"

#include <cstddef>

#include "store/hdf5.hpp"
#include "store/job_parts.hpp"
#include "store/table.hpp"

namespace reelmesh {
namespace {

// A row of /provenance/hosts.
struct HostRow {
  std::int32_t rank;
  char host[64];
  char processor[64];
  char vectors[32];
  char device[64];
  char driver[48];
};

void write_hosts(hid_t group, const std::vector<RankHost>& hosts) {
  std::vector<HostRow> rows(hosts.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    rows[i].rank = static_cast<std::int32_t>(i);
    put(rows[i].host, hosts[i].host);
    put(rows[i].processor, hosts[i].processor);
    put(rows[i].vectors, hosts[i].vectors);
    put(rows[i].device, hosts[i].device);
    put(rows[i].driver, hosts[i].driver);
  }
  const auto text = [](const char* name, std::size_t offset, std::size_t letters,
                       const char* long_name) {
    return Column{name, offset, hdf5::no_id, long_name, "", letters, {}};
  };
  write_table(
      group,
      {"hosts",
       "rank",
       "the computer of each rank",
       sizeof(HostRow),
       {{"rank", offsetof(HostRow, rank), H5T_NATIVE_INT32, "rank", "", 0, {}},
        text("host", offsetof(HostRow, host), sizeof HostRow::host, "name of the host"),
        text("processor", offsetof(HostRow, processor), sizeof HostRow::processor, "processor"),
        text("vectors", offsetof(HostRow, vectors), sizeof HostRow::vectors,
             "vector instructions of products on it"),
        text("device", offsetof(HostRow, device), sizeof HostRow::device, "device"),
        text("driver", offsetof(HostRow, driver), sizeof HostRow::driver, "driver of the GPU")}},
      bytes_of(rows));
}

}  // namespace

void write_provenance(hid_t file, const Provenance& from) {
  const hdf5::Group group(
      hdf5::check_in(file, H5Gcreate2(file, "provenance", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                     "make /provenance"));
  const hid_t id = group.get();
  hdf5::write_attribute(id, "command", from.command);
  hdf5::write_attribute(id, "working_folder", from.working_folder);
  hdf5::write_attribute(id, "job_file", from.job_file);
  hdf5::write_attribute(id, "options_given", from.options_given);
  hdf5::write_attribute(id, "git_revision", from.git_revision);
  hdf5::write_flag(id, "git_changed", from.git_changed);
  hdf5::write_attribute(id, "compiler", from.compiler);
  hdf5::write_attribute(id, "compiler_flags", from.compiler_flags);
  hdf5::write_attribute(id, "build_type", from.build_type);
  hdf5::write_attribute(id, "libraries", from.libraries);
  hdf5::write_attribute(id, "model_path", from.model_path);
  hdf5::write_attribute(id, "weights_hash", from.weights_hash);
  hdf5::write_attribute(id, "products", from.products);
  hdf5::write_attribute(id, "environment", from.environment);
  hdf5::write_attribute(id, "slurm", from.slurm);
  write_hosts(id, from.hosts);
}

}  // namespace reelmesh
