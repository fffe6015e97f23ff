#include "weights/model_paths.hpp"

#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempFolder;
using test::write_file;

class Links : public testing::Test {
 protected:
  void SetUp() override {
    make_model(folder_ / "model");
    fs::create_directories(folder_ / "elsewhere");
    write_file(folder_ / "elsewhere" / "config.json", "{}");
  }
  static void make_model(const fs::path& root) {
    for (const char* part : {"transformer", "vae", "text_encoder", "tokenizer", "scheduler"}) {
      fs::create_directories(root / part);
      write_file(root / part / "config.json", "{}");
    }
    write_file(root / "model_index.json", "{}");
  }
  static void replace_by_link(const fs::path& path, const fs::path& target) {
    fs::remove_all(path);
    fs::create_symlink(target, path);
  }
  static ModelPaths model_paths(const fs::path& root) {
    ModelPaths paths{.root = root};
    paths.complete();
    return paths;
  }
  static void accepted(const ModelPaths& paths) { EXPECT_NO_THROW(paths.check_links()); }
  template <class... Parts>
  static void refused(const ModelPaths& paths, const Parts&... parts) {
    expect_error(
        Status::data, [&] { paths.check_links(); }, parts...);
  }

  TempFolder folder_;
  fs::path model_ = folder_ / "model";
};

TEST_F(Links, MayStayInTheCheckpoint) {
  accepted(model_paths(model_));
  replace_by_link(model_ / "vae" / "config.json", "../transformer/config.json");
  replace_by_link(model_ / "tokenizer", "text_encoder");
  accepted(model_paths(model_));
  fs::create_symlink("nowhere", model_ / "vae" / "weights");  // left to the function that opens it
  accepted(model_paths(model_));
  accepted(model_paths(folder_ / "no_such_folder"));
}

TEST_F(Links, MayNotLeadOutOfIt) {
  replace_by_link(model_ / "vae" / "config.json", "../../elsewhere/config.json");
  refused(model_paths(model_), (model_ / "vae" / "config.json").string(),
          "is a link to ../../elsewhere/config.json, expected a path within " + model_.string());
  const fs::path before = fs::current_path();
  fs::current_path(model_);
  refused(model_paths("."), "vae/config.json");
  fs::current_path(before);
  refused(model_paths(model_ / ""), "vae/config.json");
  write_file(model_ / "inner", "{}");
  replace_by_link(model_ / "vae" / "config.json", folder_ / "elsewhere" / "link");
  replace_by_link(folder_ / "elsewhere" / "link", model_ / "inner");
  accepted(model_paths(model_));  // by a way around, but to a file of the checkpoint
}

TEST_F(Links, MayNotBeIndexOrPartsThatAreElsewhere) {
  replace_by_link(model_ / "model_index.json", folder_ / "elsewhere" / "config.json");
  refused(model_paths(model_), "model_index.json: is a link to");
  write_file(folder_ / "model_index.json", "{}");
  fs::remove(model_ / "model_index.json");
  replace_by_link(model_ / "transformer", folder_ / "elsewhere");
  refused(model_paths(model_), (model_ / "transformer").string(),
          "model.transformer takes a folder");
}

TEST_F(Links, MayBeTheFolderItself) {
  fs::create_symlink("model", folder_ / "linked");
  accepted(model_paths(folder_ / "linked"));
  replace_by_link(model_ / "vae" / "config.json", "../../elsewhere/config.json");
  refused(model_paths(folder_ / "linked"), "vae/config.json");
}

TEST_F(Links, OfAPartThatTheUserGives) {
  fs::create_symlink("elsewhere", folder_ / "linked");
  ModelPaths paths = model_paths(model_);
  paths.vae = folder_ / "linked";
  accepted(paths);
  fs::create_symlink("../model/inner", folder_ / "elsewhere" / "other.json");
  write_file(model_ / "inner", "{}");
  refused(paths, "other.json", "expected a path within " + (folder_ / "linked").string());
}

TEST_F(Links, OfTheHubsCacheLeadToItsBlobs) {
  const fs::path hub = folder_ / "hub" / "models--org--name";
  const fs::path snapshot = hub / "snapshots" / "0123abc";
  make_model(snapshot);
  fs::create_directories(hub / "blobs");
  write_file(hub / "blobs" / "4567", "{}");
  replace_by_link(snapshot / "vae" / "config.json", "../../../blobs/4567");
  replace_by_link(snapshot / "model_index.json", "../../blobs/4567");
  accepted(model_paths(snapshot));
  fs::create_symlink(snapshot, folder_ / "linked");
  accepted(model_paths(folder_ / "linked"));
  ModelPaths paths = model_paths(model_);
  paths.vae = snapshot / "vae";
  accepted(paths);
  replace_by_link(hub / "blobs" / "4567", folder_ / "elsewhere" / "config.json");
  refused(paths, "is a link to ../../../blobs/4567");
  replace_by_link(hub / "blobs" / "4567", "../snapshots/0123abc/transformer/config.json");
  accepted(model_paths(snapshot));
  replace_by_link(snapshot / "vae" / "config.json", "../../../../models--other/blobs/4567");
  fs::create_directories(folder_ / "hub" / "models--other" / "blobs");
  write_file(folder_ / "hub" / "models--other" / "blobs" / "4567", "{}");
  refused(model_paths(snapshot), "models--other");
}

TEST(ModelPaths, AreDescribedWithTheirLoras) {
  ModelPaths paths{.root = "models/x"};
  EXPECT_EQ(paths.text(), "models/x");
  paths.loras = {{"ink.safetensors", 0.8}, {"orbit", 1}};
  EXPECT_EQ(paths.text(), "models/x with LoRA ink.safetensors (scale 0.8), orbit");
}

}  // namespace
}  // namespace reelmesh
