// What lib/media makes of files, for comparison with other programs: media_bytes < COMMANDS
//
//   image FILE OUTPUT                  writes the bytes of an image, RGB
//   resize FILE OUTPUT HEIGHT WIDTH    of the resized image
//   video FILE OUTPUT                  of all frames of a video
//   frames FILE OUTPUT FIRST           of its frames from this one on, which is found by its time
//   memory                             prints the largest resident memory so far, in KiB
//
// Prints a line for each command: height, width and for videos frames and frames in a second, and
// the milliseconds of the frames if the rate varies; or "error", the status and the message.
#include <sys/resource.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "media/image.hpp"
#include "media/video.hpp"

namespace reelmesh {
namespace {

void append(const std::string& path, const Tensor& pixels) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(static_cast<const char*>(pixels.raw()), pixels.bytes());
  require(file.good(), Status::io, "{}: cannot be written", path);
}

void print(const media::VideoFacts& facts) {
  std::cout << facts.height << ' ' << facts.width << ' ' << facts.frames << ' ' << facts.fps;
  for (const std::int32_t time : facts.times) std::cout << ' ' << time;
  std::cout << std::endl;
}

void read_video(const std::string& file, const std::string& output) {
  const media::VideoFacts facts = media::video_facts(file, "video");
  media::read_video(file, "video", facts.frames, [&](std::int64_t, const Tensor& pixels) {
    require(pixels.shape() == Shape{facts.height, facts.width, 3}, Status::internal,
            "{}: video_facts gives {} x {}", file, facts.width, facts.height);
    append(output, pixels);
  });
  print(facts);
}

void read_frames(const std::string& file, const std::string& output, std::int64_t first) {
  const media::VideoFacts facts = media::video_index(file, "video");
  std::vector<std::int64_t> frames;
  for (std::int64_t frame = first; frame < facts.frames; ++frame) frames.push_back(frame);
  media::read_video_frames(
      file, "video", frames, [&](std::int64_t, const Tensor& pixels) { append(output, pixels); },
      media::frame_place(facts.times, facts.begin, facts.distance, first));
  print(facts);
}

void run(const std::string& line) {
  std::istringstream words(line);
  std::string command, file, output;
  words >> command >> file >> output;
  if (command == "memory") {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    std::cout << usage.ru_maxrss << std::endl;
    return;
  }
  std::ofstream(output, std::ios::trunc);
  if (command == "video") return read_video(file, output);
  if (command == "frames") {
    std::int64_t first = 0;
    words >> first;
    return read_frames(file, output, first);
  }
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
