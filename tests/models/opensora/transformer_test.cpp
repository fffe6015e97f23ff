// Compares Open-Sora's transformers with Open-Sora's own code, and checks that all layouts give the
// same bits.
#include "models/opensora/transformer.hpp"
#include "models/common/asked.hpp"

#include <array>

#include "base/trace.hpp"
#include "models/opensora/reference.hpp"
#include "sampler/generator.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::frame_first;
using reelmesh::test::frames_at;
using reelmesh::test::OpenSoraReference;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

// A call of the transformer that is stored in the reference data.
struct Call {
  const char* kind;
  const char* name;
  std::int64_t height = 0, width = 0;
};
void PrintTo(const Call& call, std::ostream* out) { *out << call.kind << ' ' << call.name; }

class Calls : public ::testing::TestWithParam<Call> {};
INSTANTIATE_TEST_SUITE_P(OpenSora, Calls,
                         ::testing::Values(Call{"v1_0", "batch"}, Call{"v1_0", "fewer_frames"},
                                           Call{"v1_2", "batch", 104, 72},
                                           Call{"v1_2", "more_frames", 64, 96}),
                         [](const auto& call) {
                           return std::string(call.param.kind) + "_" + call.param.name;
                         });

// The first or second clip of a call.
struct Case {
  STDiTClip clip;
  Tensor latents;  // [frame, channel, row, column]
  Tensor text;
  double timestep = 0;
};

Case make_case(const OpenSoraReference& reference, const Call& call, std::int64_t item) {
  const std::string name = call.name;
  Case c;
  c.latents = frame_first(reference.get(name + ".latents", item));
  c.clip = {
      {c.latents.shape(0), c.latents.shape(2), c.latents.shape(3)}, call.height, call.width, 24};
  c.text = reference.text(std::int64_t(reference.get(name + ".texts").data<float>()[item]));
  c.timestep = reference.get(name + ".timestep").data<float>()[0];
  return c;
}

// Layout of the latents [frame, channel, row, column]. In all configurations a token is a patch of
// 2 x 2 latents.
Layout latent_layout(const SpaceTime& layouts, const STDiTClip& clip, std::int64_t channels) {
  return latents_of_tokens(layouts.tokens, {1, 2, 2}, clip.latents).with_axis(1, channels);
}

// Predictions of both branches for a batch of clips, each whole on every rank of the group.
std::vector<STDiT::Predictions> predictions(const STDiT& model, const comm::Group& group,
                                            const SpaceTime& layouts,
                                            const std::vector<Case>& cases) {
  const STDiTClip& clip = cases.front().clip;
  const STDiTPlacement placement(model, group, layouts, clip, std::ssize(cases));
  const Layout layout = latent_layout(layouts, clip, model.config().in_channels);
  const Layout out = latent_layout(layouts, clip, model.config().out_channels());
  std::vector<Tensor> boxes;
  std::vector<STDiTContext> texts;
  for (const Case& c : cases) {
    const Layout everywhere = Layout::replicated(layout.global(), group.size());
    boxes.push_back(relayout({c.latents, everywhere, group}, layout).local);
    texts.push_back(model.encode_context(c.text.to(model.dtype())));
  }
  auto all = model(placement, boxes, texts, cases.front().timestep);
  for (auto& both : all) {
    for (Tensor& mine : both) {
      mine = relayout({mine, out, group}, Layout::replicated(out.global(), group.size())).local;
    }
  }
  return all;
}

STDiT::Predictions predictions(const STDiT& model, const comm::Group& group,
                               const SpaceTime& layouts, const Case& c) {
  return predictions(model, group, layouts, std::vector{c}).front();
}

// All grids frames × rows of the ranks.
std::vector<SpaceTime> all_layouts(const Shape& tokens, std::int64_t heads, int ranks) {
  std::vector<SpaceTime> layouts;
  for (int frames = 1; frames <= ranks; ++frames) {
    if (ranks % frames == 0) layouts.emplace_back(tokens, frames, ranks / frames, heads);
  }
  return layouts;
}

STDiT make_model(const OpenSoraReference& reference, DType dtype) {
  return {Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model"),
          reference.transformer, dtype};
}

TEST_P(Calls, EqualTheReferenceOnEveryLayout) {
  const OpenSoraReference reference(GetParam().kind);
  const STDiT model = make_model(reference, DType::float32);
  const auto world = test::world();
  const std::string name = GetParam().name;
  const std::int64_t items = reference.get(name + ".latents").shape(0);
  for (std::int64_t item = 0; item < items; ++item) {
    const Case c = make_case(reference, GetParam(), item);
    for (const SpaceTime& layouts : all_layouts(c.clip.tokens(reference.transformer.patch),
                                                reference.transformer.heads, world.size())) {
      const auto mine = predictions(model, world, layouts, c);
      // The reference has the prompts first, then the unconditional branches.
      const std::array rows{items + item, item};
      for (std::size_t branch = 0; branch < 2; ++branch) {
        const Tensor expected = frame_first(reference.get(name + ".output", rows.at(branch)));
        EXPECT_LT(
            relative_error(frames_at(mine[branch], reference.get(name + ".frames")), expected),
            1e-5)
            << "clip " << item << ", branch " << branch << ", " << layouts.split_rows
            << " parts of rows";
      }
    }
  }
}

TEST_P(Calls, HaveTheSameBitsOnEveryLayout) {
  const OpenSoraReference reference(GetParam().kind);
  const auto world = test::world(), first = world.range(0, 1);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const STDiT model = make_model(reference, dtype);
    const Case c = make_case(reference, GetParam(), 0);
    const Shape tokens = c.clip.tokens(reference.transformer.patch);
    STDiT::Predictions alone;
    if (first.member())
      alone = predictions(model, first, SpaceTime(tokens, 1, 1, model.config().heads), c);
    for (const SpaceTime& layouts : all_layouts(tokens, model.config().heads, world.size())) {
      const auto together = predictions(model, world, layouts, c);
      for (std::size_t branch = 0; first.member() && branch < alone.size(); ++branch) {
        EXPECT_TRUE(same_bits(together[branch], alone[branch]))
            << name_of(dtype) << ", branch " << branch << ", " << layouts.split_rows
            << " parts of rows";
      }
    }
  }
}

// The clips' texts differ in length.
TEST_P(Calls, GiveEachClipOfABatchItsOwnBits) {
  const OpenSoraReference reference(GetParam().kind);
  const auto world = test::world();
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const STDiT model = make_model(reference, dtype);
    std::vector<Case> cases(3, make_case(reference, GetParam(), 0));
    cases[1].latents = reelmesh::test::random_tensor(cases[0].latents.shape(), 1);
    cases[1].text = cases[0].text.rows(0, 2);
    cases[2].latents = reelmesh::test::random_tensor(cases[0].latents.shape(), 2);
    cases[2].text = reference.text(1);
    for (const SpaceTime& layouts : all_layouts(cases[0].clip.tokens(reference.transformer.patch),
                                                reference.transformer.heads, world.size())) {
      const auto together = predictions(model, world, layouts, cases);
      for (std::size_t clip = 0; clip < cases.size(); ++clip) {
        const auto alone = predictions(model, world, layouts, cases[clip]);
        for (std::size_t branch = 0; branch < alone.size(); ++branch) {
          EXPECT_TRUE(same_bits(together[clip].at(branch), alone.at(branch)))
              << name_of(dtype) << ", clip " << clip << ", branch " << branch << ", "
              << layouts.split_rows << " parts of rows";
        }
      }
    }
  }
}

// 16 heads and 16 x 16 patches of 16 frames, as in the released model.
TEST(STDiT, EqualsTheReferenceOnTheReleasedGrid) {
  const std::filesystem::path folder =
      std::filesystem::path(REELMESH_TEST_DATA) / "opensora" / "v1_0_wide";
  const auto results = Checkpoint::open(folder, "reference");
  const auto get = [&](const std::string& name) {
    return results.load(name, results.tensors().at(name).shape, DType::float32);
  };
  const auto config = STDiTConfig::read(Config::read(folder / "transformer" / "config.json"));
  const STDiT model(Checkpoint::open(folder / "transformer", "diffusion_pytorch_model"), config,
                    DType::float32);
  Case c;
  c.clip = {{16, 32, 32}, 256, 256, 8};
  TorchGenerator generator(6);
  c.latents = Tensor::empty({16, 4, 32, 32}, DType::float32);
  fill_noise_by_channel(generator, c.latents.shape(), {0, 0, 0, 0}, c.latents.shape(), 1,
                        c.latents.data<float>());
  std::int64_t kept = 0;
  const Tensor mask = get("mask");
  for (const float one : mask.span<float>()) kept += std::int64_t(one);
  c.text = get("embeddings").rows(0, kept);
  c.timestep = get("timestep").data<float>()[0];
  const auto world = test::world();
  const Tensor output = get("output");
  for (const SpaceTime& layouts : all_layouts({16, 16, 16}, model.config().heads, world.size())) {
    const auto mine = predictions(model, world, layouts, c);
    for (std::int64_t branch = 0; branch < 2; ++branch) {
      const Tensor expected = output.rows(1 - branch, 1).reshape({8, 1, 32, 32});
      EXPECT_LT(relative_error(frames_at(mine[std::size_t(branch)], get("frames")),
                               frame_first(expected)),
                1e-5)
          << "branch " << branch << ", " << layouts.split_rows << " parts of rows";
    }
  }
}

TEST(STDiT, InBfloat16IsNearTheReference) {
  for (const char* kind : {"v1_0", "v1_2"}) {
    const OpenSoraReference reference(kind);
    const STDiT model = make_model(reference, DType::bfloat16);
    const auto world = test::world();
    const Case c = make_case(reference, {kind, "batch", 104, 72}, 0);
    const auto mine = predictions(model, world,
                                  SpaceTime(c.clip.tokens(reference.transformer.patch),
                                            world.size(), 1, model.config().heads),
                                  c);
    EXPECT_LT(relative_error(frames_at(mine[1], reference.get("batch.frames")),
                             frame_first(reference.get("batch.output", 0))),
              4e-2)
        << kind;
  }
}

TEST(STDiT, SendsTwoExchangesAPairAndNoMore) {
  const OpenSoraReference reference("v1_0");
  const auto world = test::world();
  const auto& c = reference.transformer;
  const STDiTClip clip{{16, 14, 10}, 112, 80, 8};
  const SpaceTime layouts(clip.tokens(c.patch), world.size(), 1, c.heads);
  const STDiT model = make_model(reference, DType::float32);
  const STDiTPlacement placement(model, world, layouts, clip);
  const std::int64_t before = trace::recorder().bytes_sent;
  const Tensor latents = Tensor::zeros(
      own_box(latent_layout(layouts, clip, c.in_channels), world).extent, DType::float32);
  const STDiTContext text = model.encode_context(reference.text(0));
  (void)model(placement, {&latents, 1}, {&text, 1}, 500);
  // Tokens that another rank has in the other cut, sent once in each direction, for both branches.
  const Box& frames = own_box(layouts.spatial, world);
  const Box& positions = own_box(layouts.temporal, world);
  const std::int64_t kept = intersect(frames, positions).numel();
  const std::int64_t a_pair =
      (frames.numel() - kept + positions.numel() - kept) * STDiT::branches * c.hidden;
  EXPECT_EQ(placement.sent_elements(), a_pair);
  EXPECT_EQ(trace::recorder().bytes_sent - before, a_pair * c.layers * std::int64_t(sizeof(float)));
}

TEST(STDiT, HasThePositionsOfTheReference) {
  for (const char* kind : {"v1_0", "v1_2"}) {
    const OpenSoraReference reference(kind);
    const Shape grid{15, 7, 5};
    const Tensor whole =
        spatial_positions(reference.transformer, grid, whole_box(grid), 104, 72).reshape({35, 40});
    EXPECT_LT(relative_error(whole, reference.get("positions.space")), 1e-6) << kind;
    const Tensor part =
        spatial_positions(reference.transformer, grid, {{3, 2, 1}, {1, 3, 4}}, 104, 72);
    EXPECT_TRUE(same_bits(part.reshape({12, 40}).rows(4, 4), whole.rows(3 * 5 + 1, 4))) << kind;
  }
  const OpenSoraReference reference("v1_0");
  EXPECT_LT(
      relative_error(time_positions(reference.transformer, 16), reference.get("positions.time")),
      1e-6);
}

// The reference masks padding, which comes last; results must equal those without padding.
TEST(MaskedT5, IsT5WithoutPadding) {
  for (const char* kind : {"v1_0", "v1_2"}) {
    const OpenSoraReference reference(kind);
    const T5Layers t5(Checkpoint::open(reference.folder / "text_encoder", "model"), reference.t5,
                      {0, reference.t5.num_layers, true, true}, DType::float32);
    for (std::int64_t i = 0; i < reference.get("text.tokens").shape(0); ++i) {
      const Tensor expected = reference.text(i);
      std::vector<std::int32_t> ids;
      const Tensor tokens = reference.get("text.tokens", i).rows(0, expected.shape(0));
      for (const float id : tokens.span<float>()) ids.push_back(std::int32_t(id));
      const Tensor mine = t5(t5.embed(ids)).reshape(expected.shape());
      EXPECT_LT(relative_error(mine, expected), 1e-5) << kind << ", text " << i;
    }
  }
}

TEST(STDiTConfig, CountsTheReleasedParameters) {
  const auto parameters = [](const ExpectedShapes& shapes) {
    std::int64_t sum = 0;
    for (const auto& [name, shape] : shapes) sum += numel(shape);
    return sum;
  };
  STDiTConfig c;  // the defaults are those of STDiT-XL/2
  EXPECT_EQ(parameters(tensors_of<STDiT>(c)), 759'620'768 + 491'520);  // and the null caption
  EXPECT_EQ(tensors_of<STDiT>(c).size(), 548U);  // without the two position tables
  c.kind = STDiTConfig::Kind::v3;
  c.max_text_tokens = 300;
  EXPECT_EQ(parameters(tensors_of<STDiT>(c)), 1'207'643'972 + 1'228'800);
}

}  // namespace
}  // namespace reelmesh
