// Times the writing of clips and of the index of a job:
//   mpirun -n 4 build/tests/bench_store DIR [FRAMES HEIGHT WIDTH [TIMES [CLIPS]]]
// By default 49 x 480 x 720, 5 times, and an index of 3000 clips. The video is smooth (shapes that
// move, with noise of one level as decoders leave it) or random, the worst case for deflate; the
// latents are random. Rank 0 prints for each repetition of write_clip, which also waits until the
// file is on the disk and reads it back: the wall-clock time; the CPU time of the busiest rank,
// which other programs disturb less; and the size of the file.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <random>
#include <string>

#include "base/trace.hpp"
#include "bench_main.hpp"
#include "store/clip.hpp"
#include "store/job.hpp"

namespace {

using namespace reelmesh;

double now() { return static_cast<double>(trace::now_ns()) * 1e-9; }

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// This rank's frames of a video; the ranks have about as many each.
Sharded make_video(const comm::Group& world, const Shape& shape, bool smooth) {
  const Layout layout = Layout::cut(shape, 0, world.size());
  const Box& box = own_box(layout, world);
  Tensor values = Tensor::empty(box.extent, DType::uint8);
  std::minstd_rand random(static_cast<unsigned>(world.rank() + 1));
  std::int64_t i = 0;
  for (std::int64_t t = box.offset[0]; t < box.offset[0] + box.extent[0]; ++t) {
    for (std::int64_t y = 0; y < shape[1]; ++y) {
      for (std::int64_t x = 0; x < shape[2]; ++x) {
        for (int c = 0; c < 3; ++c, ++i) {
          const auto noise = static_cast<int>(random() >> 8U);
          const double wave = std::sin(0.013 * static_cast<double>(x + 3 * t) + c) +
                              std::cos(0.021 * static_cast<double>(y - t) - 0.5 * c);
          const int level = smooth ? 128 + static_cast<int>(55 * wave) + noise % 3 - 1 : noise;
          values.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(level);
        }
      }
    }
  }
  return {std::move(values), layout, world};
}

Sharded make_latents(const comm::Group& world, const Shape& video) {
  const Shape shape{(video[0] + 3) / 4, 16, video[1] / 8, video[2] / 8};
  const Layout layout = Layout::cut(shape, 2, world.size());
  Tensor values = Tensor::empty(own_box(layout, world).extent, DType::float32);
  std::minstd_rand random(static_cast<unsigned>(world.rank() + 1));
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < values.numel(); ++i) values.data<float>()[i] = normal(random);
  return {std::move(values), layout, world};
}

void bench_clip(const comm::Group& world, const std::filesystem::path& folder, const Shape& shape,
                int times) {
  const Sharded latents = make_latents(world, shape);
  for (const bool smooth : {true, false}) {
    const Sharded video = make_video(world, shape, smooth);
    for (int i = 0; i < times; ++i) {
      world.barrier();
      const double begin = now(), cpu_begin = cpu_seconds();
      write_clip(world, folder, ClipRecord(), {.video = video, .latents = latents}, true);
      const double cpu = world.max(cpu_seconds() - cpu_begin);
      const double seconds = world.max(now() - begin);
      if (world.rank() != 0) continue;
      const auto bytes = std::filesystem::file_size(clip_path(folder, 0));
      fmt::print("{} ranks, {}: {:.3f} s, {:.3f} s of CPU time, {:.1f} MiB\n", world.size(),
                 smooth ? "smooth" : "random", seconds, cpu,
                 static_cast<double>(bytes) / (1 << 20));
      std::fflush(stdout);
    }
  }
}

void bench_index(const std::filesystem::path& folder, const Shape& shape, int clips, int times) {
  JobRecord record;
  record.status = "complete";
  record.clips.resize(static_cast<std::size_t>(clips));
  for (JobClip& clip : record.clips) {
    clip.prompt = "a red fox walks through deep snow in the light of a low winter sun";
    clip.request = fmt::format(R"({{"prompt":"{}","seed":42,"steps":50}})", clip.prompt);
    clip.fps = 8;
    clip.video = shape;
  }
  for (int i = 0; i < times; ++i) {
    const double begin = now();
    write_job(folder, record);
    fmt::print("index of {} clips: {:.3f} s, {:.1f} MiB\n", clips, now() - begin,
               static_cast<double>(std::filesystem::file_size(folder / "job.h5")) / (1 << 20));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto bench = [](const std::vector<std::string>& words) {
    const comm::Group world = comm::Group::world();
    const auto number = [&](std::size_t word, int otherwise) {
      return words.size() > word ? std::stoi(words[word]) : otherwise;
    };
    const std::filesystem::path folder = words.at(0);
    const Shape shape{number(1, 49), number(2, 480), number(3, 720), 3};
    const int times = number(4, 5);
    if (world.rank() == 0) std::filesystem::create_directories(folder / "clips");
    world.barrier();
    bench_clip(world, folder, shape, times);
    if (world.rank() == 0) bench_index(folder, shape, number(5, 3000), times);
  };
  return bench_main(argc, argv, bench, "bench_store DIR [FRAMES HEIGHT WIDTH [TIMES [CLIPS]]]");
}
