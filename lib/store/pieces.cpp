#include "store/pieces.hpp"

#include <algorithm>
#include <optional>

#include "base/hash.hpp"
#include "base/new_file.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"

namespace reelmesh {
namespace {

// How many indices of the first axis are written at a time: all, or those of about 4 MiB.
std::int64_t portion_indices(const Piece& piece) {
  const std::int64_t indices = piece.box.extent[0];
  if (!piece.read || piece.box.empty()) return std::max<std::int64_t>(indices, 1);
  const std::int64_t bytes =
      piece.box.numel() / indices * static_cast<std::int64_t>(H5Tget_size(piece.type));
  return std::max<std::int64_t>((std::int64_t{4} << 20) / bytes, 1);
}

std::int64_t portions(const Piece& piece) {
  const std::int64_t portion = portion_indices(piece);
  return (piece.box.extent[0] + portion - 1) / portion;
}

// A part of a piece that is written at a time.
struct Portion {
  Box box;  ///< empty if the piece has fewer portions
  const void* given = nullptr;
  std::string read;
  const void* values() const { return given != nullptr ? given : read.data(); }
};

Portion portion(const Piece& piece, std::int64_t number) {
  if (!piece.read) return {piece.box, piece.values, {}};
  const std::int64_t first = std::min(number * portion_indices(piece), piece.box.extent[0]);
  Box box = piece.box;
  box.offset[0] += first;
  box.extent[0] = std::min(portion_indices(piece), piece.box.extent[0] - first);
  return {box, nullptr, box.empty() ? std::string() : piece.read(first, box.extent[0])};
}

void write_values(const comm::Group& group, const std::filesystem::path& path,
                  const std::vector<Piece>& pieces) {
  hdf5::File file;
  try {
    comm::run_collectively(group, [&] { file = hdf5::open_together(group, path); });
    for (const Piece& piece : pieces) {
      hdf5::Dataset dataset;
      comm::run_collectively(group,
                             [&] { dataset = hdf5::open_dataset(file.get(), piece.name.c_str()); });
      const std::int64_t rounds = piece.read ? group.max(portions(piece)) : 1;
      for (std::int64_t round = 0; round < rounds; ++round) {
        Portion part;
        comm::run_collectively(group, [&] { part = portion(piece, round); });
        comm::run_collectively(group, [&] {
          hdf5::write_box_together(dataset.get(), piece.type, part.box, part.values());
        });
      }
    }
    comm::run_collectively(group, [&] { file.close(); });
  } catch (...) {
    file.abandon();
    throw;
  }
}

/// The ranks write one after the other, each to a file that is closed by those before.
void write_values_in_turn(const comm::Group& group, const std::filesystem::path& path,
                          const std::vector<Piece>& pieces) {
  const auto bytes_now = [&] {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    require(!error, Status::io, "{}: cannot find its size: {}", path.string(), error.message());
    return static_cast<std::int64_t>(bytes);
  };
  std::int64_t reserved = 0;
  comm::run_collectively(group, [&] { reserved = bytes_now(); });
  for (int rank = 0; rank < group.size(); ++rank) {
    comm::run_collectively(group, [&] {
      if (rank != group.rank()) return;
      // The close of an earlier rank gave back the space that was reserved and not used.
      if (const std::int64_t bytes = bytes_now(); bytes < reserved) {
        reserve_space(path, reserved - bytes);
      }
      hdf5::write_and_close(hdf5::open_to_write(path),
                            [&](hid_t file) { write_pieces_alone(file, pieces); });
      flush_to_disk(path);
    });
  }
}

void check_values(const std::filesystem::path& path, const std::vector<Piece>& pieces) {
  const hdf5::File file = hdf5::open_for_reading(path);
  for (const Piece& piece : pieces) {
    const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), piece.name.c_str());
    if (piece.box.empty()) continue;
    for (std::int64_t number = 0; number < portions(piece); ++number) {
      const Portion part = portion(piece, number);
      const std::string found = hdf5::read_box(dataset.get(), piece.type, part.box);
      require(std::memcmp(found.data(), part.values(), found.size()) == 0, Status::io,
              "{}: {} {} does not read back as it was written", path.string(), piece.name,
              to_string(part.box));
    }
  }
}

}  // namespace

std::string combined(std::span<const std::uint64_t> hashes) {
  return fmt::format("{:016x}",
                     hash_of({reinterpret_cast<const char*>(hashes.data()), hashes.size_bytes()}));
}

std::string texts_checksum(const std::vector<std::string_view>& texts) {
  std::vector<std::uint64_t> hashes;
  for (const std::string_view text : texts) hashes.push_back(hash_of(text));
  return combined(hashes);
}

std::vector<std::uint64_t> hashes_of_indices(std::string_view bytes, std::int64_t indices) {
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(indices));
  const std::size_t size = bytes.size() / std::max<std::size_t>(hashes.size(), 1);
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = hash_of(bytes.substr(i * size, size));
  return hashes;
}

std::string piece_checksum(const comm::Group& group, const Piece& piece) {
  std::vector<std::uint64_t> hashes;
  if (!piece.box.empty()) {
    const std::size_t bytes = static_cast<std::size_t>(piece.box.numel()) * H5Tget_size(piece.type);
    hashes =
        hashes_of_indices({static_cast<const char*>(piece.values), bytes}, piece.box.extent[0]);
  }
  std::vector<std::uint64_t> all;
  for (const std::vector<std::uint64_t>& of_rank : comm::gather_values(group, hashes, 0)) {
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return group.rank() == 0 ? combined(all) : "";
}

void write_pieces_alone(hid_t file, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    if (piece.box.empty()) continue;
    const hdf5::Dataset dataset = hdf5::open_dataset(file, piece.name.c_str());
    for (std::int64_t number = 0; number < portions(piece); ++number) {
      const Portion part = portion(piece, number);
      hdf5::write_box_alone(dataset.get(), piece.type, part.box, part.values());
    }
  }
}

void write_pieces(const comm::Group& group, const std::filesystem::path& path,
                  const std::function<void(hid_t)>& make_structure, std::int64_t reserve,
                  const std::vector<Piece>& pieces) {
  const std::filesystem::path temporary = temporary_path(path);
  std::optional<NewFile> created;  // on the first rank
  try {
    comm::run_collectively(group, [&] {
      if (group.rank() != 0) return;
      created.emplace(path);
      hdf5::write_and_close(hdf5::create(temporary), make_structure);
      reserve_space(temporary, reserve);
    });
    std::int64_t without_locks = 0;
    comm::run_collectively(group, [&] { without_locks = can_lock(temporary) ? 0 : 1; });
    if (group.max(without_locks) == 0) {
      write_values(group, temporary, pieces);
    } else {  // MPI-IO (ROMIO) would end the program
      write_values_in_turn(group, temporary, pieces);
    }
    comm::run_collectively(group, [&] {
      flush_to_disk(temporary);
      check_values(temporary, pieces);
    });
    comm::run_collectively(group, [&] {
      if (created) created->commit();
    });
  } catch (...) {
    created.reset();
    group.barrier();  // all ranks come here; none goes on before the file is removed
    throw;
  }
}

}  // namespace reelmesh
