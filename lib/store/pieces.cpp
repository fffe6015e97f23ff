#include "store/pieces.hpp"

#include <cstring>

#include "base/hash.hpp"
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

std::string combined(std::span<const std::uint64_t> hashes) {
  return fmt::format("{:016x}",
                     hash_of({reinterpret_cast<const char*>(hashes.data()), hashes.size_bytes()}));
}

std::string checksum_of(const comm::Group& group, const Piece& piece) {
  std::vector<std::uint64_t> hashes;
  if (!piece.box.empty()) {
    const auto indices = static_cast<std::size_t>(piece.box.extent[0]);
    const std::size_t bytes =
        static_cast<std::size_t>(piece.box.numel()) * H5Tget_size(piece.type) / indices;
    for (std::size_t i = 0; i < indices; ++i) {
      hashes.push_back(hash_of({static_cast<const char*>(piece.values) + i * bytes, bytes}));
    }
  }
  const std::string own(reinterpret_cast<const char*>(hashes.data()),
                        hashes.size() * sizeof(std::uint64_t));
  std::string all;
  for (const std::string& block : group.gather(own, 0)) all += block;
  if (group.rank() != 0) return {};
  hashes.resize(all.size() / sizeof(std::uint64_t));
  std::memcpy(hashes.data(), all.data(), all.size());
  return combined(hashes);
}

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
