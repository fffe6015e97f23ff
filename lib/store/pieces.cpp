#include "store/pieces.hpp"

#include <cstring>

#include "comm/together.hpp"
#include "store/file.hpp"

namespace reelmesh {
namespace {

void write_values(const comm::Group& group, const std::filesystem::path& path,
                  const std::vector<Piece>& pieces) {
  hdf5::File file;
  try {
    comm::run_collectively(group, [&] { file = hdf5::open_together(group, path); });
    for (const Piece& piece : pieces) {
      hdf5::Dataset dataset;
      comm::run_collectively(group,
                             [&] { dataset = hdf5::open_dataset(file.get(), piece.name.c_str()); });
      comm::run_collectively(
          group, [&] { hdf5::write_box(dataset.get(), piece.type, piece.box, piece.values); });
    }
    comm::run_collectively(group, [&] { file.close(); });
  } catch (...) {
    file.abandon();
    throw;
  }
}

void check_values(const std::filesystem::path& path, const std::vector<Piece>& pieces) {
  const hdf5::File file = hdf5::open_for_reading(path);
  for (const Piece& piece : pieces) {
    const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), piece.name.c_str());
    if (piece.box.empty()) continue;
    const std::string found = hdf5::read_box(dataset.get(), piece.type, piece.box);
    require(std::memcmp(found.data(), piece.values, found.size()) == 0, Status::io,
            "{}: {} {} does not read back as it was written", path.string(), piece.name,
            to_string(piece.box));
  }
}

}  // namespace

void write_pieces(const comm::Group& group, const std::filesystem::path& path,
                  const std::function<void(hid_t)>& make_structure, std::int64_t reserve,
                  const std::vector<Piece>& pieces) {
  const std::filesystem::path partial = partial_path(path);
  const bool leader = group.rank() == 0;
  try {
    comm::run_collectively(group, [&] {
      if (!leader) return;
      create_empty(partial);
      hdf5::File file = hdf5::create(partial);
      make_structure(file.get());
      file.close();
      reserve_space(partial, reserve);
    });
    write_values(group, partial, pieces);
    comm::run_collectively(group, [&] {
      sync_file(partial);
      check_values(partial, pieces);
    });
    comm::run_collectively(group, [&] {
      if (leader) publish(path);
    });
  } catch (...) {
    if (leader) discard(partial);
    group.barrier();  // all ranks come here; none goes on before the file is removed
    throw;
  }
}

}  // namespace reelmesh
