#include <stdlib.h>

#include <fstream>
#include <vector>

#include "fuzz/fuzz.hpp"

namespace reelmesh::fuzz {
namespace {

namespace fs = std::filesystem;

struct Folders {
  std::vector<fs::path> made;
  ~Folders() {
    std::error_code ignored;
    for (const fs::path& folder : made) fs::remove_all(folder, ignored);
  }
};

}  // namespace

fs::path make_folder() {
  static Folders folders;
  std::error_code error;
  const fs::path parent = fs::is_directory("/dev/shm", error) ? "/dev/shm" : "/tmp";
  std::string name = parent / "reelmesh_fuzz_XXXXXX";
  require(mkdtemp(name.data()) != nullptr, Status::cannot_create, "{}: cannot be made", name);
  folders.made.emplace_back(name);
  return name;
}

void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  require(file.good(), Status::cannot_create, "{}: cannot be written", path.string());
}

}  // namespace reelmesh::fuzz
