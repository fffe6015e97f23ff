// What lib/media makes of files, for comparison with other programs:
//
//   media_bytes < COMMANDS
//
// Each line is a command: "image FILE OUTPUT" writes the bytes of an image, RGB; "resize FILE
// OUTPUT HEIGHT WIDTH" those of the resized image. Prints one line for each: height and width, or
// "error", the status and the message.
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "media/image.hpp"

namespace reelmesh {
namespace {

void append(const std::string& path, const Tensor& pixels) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(static_cast<const char*>(pixels.raw()), pixels.bytes());
  require(file.good(), Status::io, "{}: cannot be written", path);
}

void run(const std::string& line) {
  std::istringstream words(line);
  std::string command, file, output;
  words >> command >> file >> output;
  std::ofstream(output, std::ios::trunc);
  Tensor pixels = media::read_image(file, "image");
  const media::ImageSize size = media::image_size(file, "image");
  require(size.height == pixels.shape(0) && size.width == pixels.shape(1), Status::internal,
          "{}: image_size gives {} x {}", file, size.width, size.height);
  if (command == "resize") {
    std::int64_t height = 0, width = 0;
    words >> height >> width;
    pixels = media::resize_lanczos(pixels, height, width);
  }
  append(output, pixels);
  std::cout << pixels.shape(0) << ' ' << pixels.shape(1) << std::endl;
}

}  // namespace
}  // namespace reelmesh

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      reelmesh::run(line);
    } catch (const reelmesh::Error& error) {
      std::cout << "error " << static_cast<int>(error.status()) << ' ' << error.what() << std::endl;
    }
  }
}
