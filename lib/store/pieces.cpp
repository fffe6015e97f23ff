#include "store/pieces.hpp"

#include <fcntl.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "base/hash.hpp"
#include "base/new_file.hpp"
#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"

namespace reelmesh {
namespace {

bool in_chunks(const Piece& piece) { return piece.storage != hdf5::Storage::whole; }

std::int64_t index_bytes(const Piece& piece) {
  const std::size_t element =
      piece.table != nullptr ? piece.table->row_bytes : H5Tget_size(piece.type);
  return piece.box.numel() / piece.box.extent[0] * static_cast<std::int64_t>(element);
}

// Indices of a chunk. A box that does not begin with the dataset is of one with several chunks.
std::int64_t chunk_indices(const Piece& piece) {
  return piece.box.extent.size() == 1 && piece.box.offset[0] > 0
             ? hdf5::max_chunk
             : hdf5::chunk_shape(piece.box.extent)[0];
}

// How many indices of the first axis are written at a time: whole chunks of about 4 MiB.
std::int64_t portion_indices(const Piece& piece) {
  const std::int64_t chunk = in_chunks(piece) ? chunk_indices(piece) : 1;
  return std::max<std::int64_t>((4 << 20) / index_bytes(piece) / chunk, 1) * chunk;
}

std::int64_t portions(const Piece& piece) {
  if (piece.box.empty()) return 0;
  const std::int64_t portion = portion_indices(piece);
  return (piece.box.extent[0] + portion - 1) / portion;
}

// A part of a piece that is written at a time.
struct Portion {
  Box box;
  const void* given = nullptr;
  std::string read;
  const void* values() const { return given != nullptr ? given : read.data(); }
};

// The datasets of a piece.
struct Target {
  std::string name;
  hid_t type;
  const Column* column;  // of a table; nullptr otherwise
};
std::vector<Target> targets(const Piece& piece) {
  if (piece.table == nullptr) return {{piece.name, piece.type, nullptr}};
  std::vector<Target> columns;
  for (const Column& column : piece.table->columns) {
    columns.push_back({column_path(*piece.table, column), column.type, &column});
  }
  return columns;
}

// The values of one of them. made: holds those of a column.
const void* values_of(const Piece& piece, const Target& target, const Portion& part,
                      std::string& made) {
  if (target.column == nullptr) return part.values();
  const auto bytes = static_cast<std::size_t>(part.box.numel()) * piece.table->row_bytes;
  made =
      column_values(*piece.table, *target.column, {static_cast<const char*>(part.values()), bytes});
  return made.data();
}

Portion portion(const Piece& piece, std::int64_t number) {
  const std::int64_t max = portion_indices(piece);
  const std::int64_t first = number * max;
  Box box = piece.box;
  box.offset[0] += first;
  box.extent[0] = std::min(max, piece.box.extent[0] - first);
  if (piece.read) {
    std::string values = piece.read(first, box.extent[0]);
    return {std::move(box), nullptr, std::move(values)};
  }
  return {std::move(box), static_cast<const char*>(piece.values) + first * index_bytes(piece), {}};
}

// Values that stand one after the other: this rank writes its own into the file. offset: of the
// first value of the dataset.
void write_contiguous(int file, const std::filesystem::path& path, const Piece& piece,
                      std::int64_t offset) {
  // Dirty pages are brought to the disk now and then, so that no flush takes very long.
  constexpr std::int64_t flush_after = 64;  // portions
  for (std::int64_t number = 0; number < portions(piece); ++number) {
    const Portion part = portion(piece, number);
    const std::int64_t bytes = part.box.extent[0] * index_bytes(piece);
    write_at(file, path, part.values(), static_cast<std::size_t>(bytes),
             offset + part.box.offset[0] * index_bytes(piece));
    if ((number + 1) % flush_after == 0) flush_to_disk(path);
    trace::recorder().note_progress();
  }
}

// One rank's chunks of a round, as they stand in the file.
struct Chunk {
  std::int64_t target = 0;
  std::int64_t index = 0;  ///< of the first axis
  std::int64_t bytes = 0;
  std::uint32_t skipped_filters = 0;  ///< as HDF5 masks them
};

// Chunks are filtered by the ranks that have their values, all at the same time, and written by
// rank 0: where a chunk stands depends on the sizes of those before it.
//
// datasets: of targets(piece), on rank 0.
void write_chunks(const comm::Group& group, const std::vector<hdf5::Dataset>& datasets,
                  const Piece& piece) {
  const std::vector<Target> written = targets(piece);
  const std::int64_t rounds = group.max(portions(piece));
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::vector<Chunk> chunks;
    std::string bytes;
    comm::run_collectively(group, [&] {
      if (round >= portions(piece)) return;
      const Portion part = portion(piece, round);
      for (std::size_t i = 0; i < written.size(); ++i) {
        std::string made;
        const void* values = values_of(piece, written[i], part, made);
        // The last chunk of several is a whole one, too.
        Shape shape = part.box.extent;
        const std::int64_t chunk = chunk_indices(piece);
        if (shape[0] % chunk != 0) {
          expect(shape.size() == 1 && values == made.data(), "{} ends within a chunk", piece.name);
          shape[0] = (shape[0] + chunk - 1) / chunk * chunk;
          made.resize(static_cast<std::size_t>(shape[0]) * H5Tget_size(written[i].type));
          values = made.data();
        }
        for (const hdf5::FilteredChunk& filtered :
             hdf5::filtered_chunks(written[i].type, shape, piece.storage, values)) {
          chunks.push_back({static_cast<std::int64_t>(i), part.box.offset[0] + filtered.index,
                            std::ssize(filtered.bytes), filtered.skipped_filters});
          bytes += filtered.bytes;
        }
      }
    });
    const auto all = comm::gather_values(group, chunks, 0);
    const auto write = [&](const std::vector<Chunk>& of_rank, const char* values) {
      for (const Chunk& chunk : of_rank) {
        hdf5::write_filtered_chunk(datasets[static_cast<std::size_t>(chunk.target)].get(),
                                   chunk.index, chunk.skipped_filters,
                                   {values, static_cast<std::size_t>(chunk.bytes)});
        values += chunk.bytes;
      }
      trace::recorder().note_progress();
    };
    // A rank's chunks come when those before are written. After a failure they come, too.
    comm::run_collectively(group, [&] {
      const auto message = [](int peer, std::string& text) {
        return std::vector<comm::Message>{
            {peer, Tensor::wrap(text.data(), {std::ssize(text)}, DType::uint8, nullptr)}};
      };
      if (group.rank() != 0) return group.exchange(message(0, bytes), {});
      std::exception_ptr failure;
      for (int rank = 0; rank < group.size(); ++rank) {
        const std::vector<Chunk>& of_rank = all[static_cast<std::size_t>(rank)];
        std::string received;
        if (rank > 0) {
          std::int64_t count = 0;
          for (const Chunk& chunk : of_rank) count += chunk.bytes;
          received.resize(static_cast<std::size_t>(count));
          group.exchange({}, message(rank, received));
        }
        if (failure) continue;
        try {
          write(of_rank, rank > 0 ? received.data() : bytes.data());
        } catch (...) {
          failure = std::current_exception();
        }
      }
      if (failure) std::rethrow_exception(failure);
    });
  }
}

// offsets: of the values of each dataset that is not in chunks.
void write_values(const comm::Group& group, const std::filesystem::path& path,
                  const std::vector<Piece>& pieces, const std::vector<std::int64_t>& offsets) {
  comm::run_collectively(group, [&] {
    const bool writes = std::ranges::any_of(
        pieces, [](const Piece& piece) { return !in_chunks(piece) && !piece.box.empty(); });
    if (!writes) return;
    Descriptor file = open_file(path, O_WRONLY);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!in_chunks(pieces[i])) write_contiguous(file.get(), path, pieces[i], offsets[i]);
    }
    close_file(std::move(file), path);
  });
  hdf5::File file;  // on rank 0
  try {
    if (std::ranges::none_of(pieces, in_chunks)) return;
    comm::run_on_first_rank(group, [&] { file = hdf5::open_to_write(path); });
    for (const Piece& piece : pieces) {
      if (!in_chunks(piece)) continue;
      std::vector<hdf5::Dataset> datasets;
      comm::run_on_first_rank(group, [&] {
        for (const Target& target : targets(piece)) {
          datasets.push_back(hdf5::open_dataset(file.get(), target.name.c_str()));
        }
      });
      write_chunks(group, datasets, piece);
    }
    comm::run_on_first_rank(group, [&] { file.close(); });
  } catch (...) {
    file.abandon();
    throw;
  }
}

void check_values(const std::filesystem::path& path, const std::vector<Piece>& pieces) {
  const hdf5::File file = hdf5::open_for_reading(path);
  for (const Piece& piece : pieces) {
    std::vector<hdf5::Dataset> datasets;
    const std::vector<Target> written = targets(piece);
    for (const Target& target : written) {
      datasets.push_back(hdf5::open_dataset(file.get(), target.name.c_str()));
    }
    for (std::int64_t number = 0; number < portions(piece); ++number) {
      const Portion part = portion(piece, number);
      for (std::size_t i = 0; i < written.size(); ++i) {
        std::string made;
        const void* expected = values_of(piece, written[i], part, made);
        const std::string found = hdf5::read_box(datasets[i].get(), written[i].type, part.box);
        require(std::memcmp(found.data(), expected, found.size()) == 0, Status::io,
                "{}: {} {} does not read back as it was written", path.string(), written[i].name,
                to_string(part.box));
      }
      trace::recorder().note_progress();
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

void write_pieces(const comm::Group& group, const std::filesystem::path& path,
                  const std::function<void(hid_t)>& make_structure, std::int64_t chunk_bytes,
                  const std::vector<Piece>& pieces) {
  const std::filesystem::path temporary = temporary_path(path);
  std::optional<NewFile> created;  // on the first rank
  try {
    std::vector<std::int64_t> offsets;
    comm::run_on_first_rank(group, [&] {
      created.emplace(path);
      hdf5::write_and_close(hdf5::create(temporary), make_structure);
      const hdf5::File made = hdf5::open_for_reading(temporary);
      for (const Piece& piece : pieces) {
        if (in_chunks(piece)) {
          offsets.push_back(0);
          continue;
        }
        const hdf5::Dataset dataset = hdf5::open_dataset(made.get(), piece.name.c_str());
        offsets.push_back(hdf5::values_offset(dataset.get()));
      }
      reserve_space(temporary, chunk_bytes);
    });
    offsets = comm::broadcast_values(group, offsets, 0);
    write_values(group, temporary, pieces, offsets);
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
