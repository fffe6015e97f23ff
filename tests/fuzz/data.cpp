// A list of videos to learn from, read as .jsonl, .json, .csv, and as prompts.txt with as many
// videos.
#include "train/data.hpp"

#include <algorithm>

#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(data) {
  static const std::filesystem::path folder = fuzz::make_folder();
  const std::string_view text = fuzz::as_text(data, size);
  DataSettings settings;
  for (const char* name : {"list.jsonl", "list.json", "list.csv"}) {
    settings.paths = {{folder / name}};
    fuzz::write_file(folder / name, text);
    fuzz::refusals_allowed([&] { read_data(settings); });
  }
  const std::filesystem::path lists = folder / "lists";
  settings.paths = {{lists}};
  std::filesystem::create_directories(lists);
  std::string videos;
  for (auto lines = std::ranges::count(text, '\n') + 1; lines > 0; --lines) videos += "a.mp4\n";
  fuzz::write_file(lists / "prompts.txt", text);
  fuzz::write_file(lists / "videos.txt", videos);
  fuzz::refusals_allowed([&] { read_data(settings); });
  return 0;
}
