#include "store/provenance.hpp"

#include <cstddef>

#include "store/hdf5.hpp"
#include "store/job_parts.hpp"

namespace reelmesh {
namespace {

// A row of /provenance/hosts, without padding.
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
    hdf5::put(rows[i].host, hosts[i].host);
    hdf5::put(rows[i].processor, hosts[i].processor);
    hdf5::put(rows[i].vectors, hosts[i].vectors);
    hdf5::put(rows[i].device, hosts[i].device);
    hdf5::put(rows[i].driver, hosts[i].driver);
  }
  const hdf5::Datatype type = hdf5::compound(
      sizeof(HostRow),
      {{"rank", offsetof(HostRow, rank), H5T_NATIVE_INT32},
       {"host", offsetof(HostRow, host), hdf5::no_id, sizeof HostRow::host},
       {"processor", offsetof(HostRow, processor), hdf5::no_id, sizeof HostRow::processor},
       {"vectors", offsetof(HostRow, vectors), hdf5::no_id, sizeof HostRow::vectors},
       {"device", offsetof(HostRow, device), hdf5::no_id, sizeof HostRow::device},
       {"driver", offsetof(HostRow, driver), hdf5::no_id, sizeof HostRow::driver}});
  const hdf5::Dataset table = hdf5::create_dataset(group, "hosts", type.get(), {std::ssize(rows)});
  if (!rows.empty()) hdf5::write_all(table.get(), type.get(), rows.data());
  hdf5::write_attribute(table.get(), "long_name", "the computer of each rank");
  hdf5::describe_columns(table.get(),
                         {"rank", "name of the host", "processor",
                          "vector instructions of products on it", "device", "driver of the GPU"},
                         {"", "", "", "", "", ""});
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
