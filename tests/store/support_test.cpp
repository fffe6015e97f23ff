#include "store_support.hpp"

#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>

#include "comm/together.hpp"
#include "support/ranks.hpp"

namespace reelmesh {

TestFolder::TestFolder(const comm::Group& world) : world_(world) {
  std::string name;
  if (world.rank() == 0) {
    name = (std::filesystem::temp_directory_path() / "reelmesh_store_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) name.clear();
  }
  path_ = world.broadcast(name, 0);
  require(!path_.empty(), Status::internal, "no temporary folder");
}

TestFolder::~TestFolder() {
  world_.barrier();
  std::error_code ignored;
  if (world_.rank() == 0) std::filesystem::remove_all(path_, ignored);
  world_.barrier();
}

std::string TestFolder::listing() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    if (!entry.is_directory()) names.push_back(entry.path().lexically_relative(path_).string());
  }
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, " "));
}

FolderTest::FolderTest() : world(test::world()), folder(world) {}

void FolderTest::on_rank_0(const std::function<void()>& work) const {
  comm::run_collectively(world, [&] {
    if (world.rank() == 0) work();
  });
}

void FolderTest::touch(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

Sharded filled(const comm::Group& group, const Layout& layout, DType dtype) {
  const Box& box = layout.box(group.rank());
  const Shape& global = layout.global();
  Sharded x{Tensor::empty(box.extent, dtype), layout, group};
  Shape indices(global.size(), 0);
  for (std::int64_t i = 0; i < x.local.numel(); ++i) {
    std::int64_t rest = i;
    for (std::size_t axis = global.size(); axis-- > 0;) {
      indices[axis] = box.offset[axis] + rest % box.extent[axis];
      rest /= box.extent[axis];
    }
    std::int64_t position = 0;
    for (std::size_t axis = 0; axis < global.size(); ++axis) {
      position = position * global[axis] + indices[axis];
    }
    if (dtype == DType::uint8) {
      x.local.data<std::uint8_t>()[i] = pixel_at(position);
    } else {
      x.local.data<float>()[i] = value_at(position);
    }
  }
  return x;
}

Layout cut_at(const Shape& global, std::size_t axis, const std::vector<std::int64_t>& cuts) {
  std::vector<Box> boxes;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    Box box = whole_box(global);
    box.offset[axis] = cuts[r];
    box.extent[axis] = cuts[r + 1] - cuts[r];
    boxes.push_back(box);
  }
  return Layout(global, boxes);
}

int run_on_rank_0(const comm::Group& world, const std::string& command) {
  const int result = world.rank() == 0 ? std::system(command.c_str()) : 0;
  return static_cast<int>(world.max(std::int64_t{result != 0}));
}

}  // namespace reelmesh
